// postgres.js: tagged statements, helpers for inserts, transactions with savepoints, cursors, COPY, arrays and JSON, notifications.
const assert = require("node:assert");
const postgres = require("postgres");

const sql = postgres({ host: "127.0.0.1", port: Number(process.argv[2]), user: "canon", database: "canon", onnotice: () => {} });

async function main() {
  await sql`CREATE TABLE pjs (id int PRIMARY KEY, v text, a text[], j jsonb, t timestamptz)`;
  const rows = [...Array(500).keys()].map((id) => ({ id, v: `v${id}`, a: ["x", "y"], j: { id }, t: new Date(0) }));
  await sql`INSERT INTO pjs ${sql(rows)}`;
  const [row] = await sql`SELECT * FROM pjs WHERE id = ${7}`;
  assert.deepStrictEqual(row, rows[7]);
  assert.strictEqual((await sql`SELECT * FROM pjs WHERE id IN ${sql([1, 2, 3])}`).count, 3);
  let seen = 0;
  await sql`SELECT id FROM pjs`.cursor(100, (found) => (seen += found.length));
  assert.strictEqual(seen, 500);
  await sql.begin("isolation level serializable", async (t) => {
    await t`UPDATE pjs SET v = 'changed' WHERE id = 1`;
    await t.savepoint((s) => s`INSERT INTO pjs (id) VALUES (1)`).catch((e) => assert.strictEqual(e.code, "23505"));
  });
  assert.strictEqual((await sql`SELECT v FROM pjs WHERE id = 1`)[0].v, "changed");
  const out = await sql`COPY (SELECT id FROM pjs WHERE id < 3 ORDER BY id) TO STDOUT`.readable();
  let text = "";
  for await (const part of out) text += part;
  assert.strictEqual(text, "0\n1\n2\n");
  const heard = new Promise((done) => sql.listen("news", done).then(() => sql.notify("news", "hello")));
  assert.strictEqual(await heard, "hello");
  await sql.end();
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
