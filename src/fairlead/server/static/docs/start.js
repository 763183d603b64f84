// URLs are relative, so that the page works below any mount path.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#api",
  deepLinking: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
