// Knex: what it asks of JSON by paths.
const assert = require("node:assert");
const knex = require("knex")({ client: "pg", connection: { host: "127.0.0.1", port: Number(process.argv[2]), user: "canon", database: "canon" } });

async function main() {
  await knex.schema.createTable("docs", (t) => t.jsonb("more"));
  await knex("docs").insert({ more: { deep: { i: 2 } } });
  assert.strictEqual(Number((await knex("docs").jsonExtract("more", "$.deep.i", "i").first()).i), 2);
  await knex.destroy();
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
