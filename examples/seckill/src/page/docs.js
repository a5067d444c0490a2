'use strict';

/** Shows the description of the API. */
async function show() {
  const place = document.getElementById('operations');
  const described = await (await fetch('/openapi.json')).json();
  for (const [path, methods] of Object.entries(described.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const article = place.appendChild(document.createElement('article'));
      article.className = 'operation';
      const add = (tag, text) => { article.appendChild(document.createElement(tag)).textContent = text; };
      add('h2', `${method.toUpperCase()} ${path}`);
      add('p', operation.summary);
      if (operation.requestBody) {
        const name = operation.requestBody.content['application/json'].schema.$ref.split('/').pop();
        const fields = described.components.schemas[name].properties;
        add('pre', `Body: ${JSON.stringify(fields, null, 2)}`);
      }
      const list = article.appendChild(document.createElement('ul'));
      for (const [status, response] of Object.entries(operation.responses)) {
        list.appendChild(document.createElement('li')).textContent = `${status}: ${response.description}`;
      }
    }
  }
}

show();
