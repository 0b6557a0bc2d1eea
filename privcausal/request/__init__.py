"""Formula, declared domains, request and plan of a call. This subpackage reads no rows."""
