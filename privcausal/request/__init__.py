"""What is asked: formula, declared domains, request and plan. No row enters here."""
