// Addresses are relative, so that the page works wherever the application is mounted.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#api",
  deepLinking: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
