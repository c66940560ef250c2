"""The OpenAPI document: `GET /openapi.json`."""
