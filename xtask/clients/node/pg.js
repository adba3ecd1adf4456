// node-postgres: parameters, prepared statements, transactions, a pool, notifications, advisory locks.
const assert = require("node:assert");
const { Client, Pool } = require("pg");

const place = { host: "127.0.0.1", port: Number(process.argv[2]), user: "canon", database: "canon" };

async function main() {
  const c = new Client(place);
  await c.connect();
  await c.query("CREATE TABLE node (id serial PRIMARY KEY, v text, j jsonb, t timestamptz DEFAULT now())");
  const made = await c.query("INSERT INTO node (v, j) VALUES ($1, $2) RETURNING *", ["x", { a: [1] }]);
  assert.deepStrictEqual(made.rows[0].j, { a: [1] });
  assert(made.rows[0].t instanceof Date);
  const named = { name: "by-id", text: "SELECT v FROM node WHERE id = $1", values: [1] };
  for (let i = 0; i < 3; i++) assert.strictEqual((await c.query(named)).rows[0].v, "x");
  await c.query("BEGIN");
  await assert.rejects(c.query("INSERT INTO node (id) VALUES (1)"), { code: "23505" });
  await c.query("ROLLBACK");
  const heard = new Promise((done) => c.on("notification", (n) => done(n.payload)));
  await c.query("LISTEN news");
  const pool = new Pool(place);
  await pool.query("SELECT pg_notify('news', 'hello')");
  assert.strictEqual(await heard, "hello");
  await c.query("SELECT pg_advisory_lock(7)");
  assert.strictEqual((await pool.query("SELECT pg_try_advisory_lock(7) AS got")).rows[0].got, false);
  const many = await Promise.all([...Array(20).keys()].map((i) => pool.query("SELECT $1::int AS i", [i])));
  assert.deepStrictEqual(many.map((r) => r.rows[0].i), [...Array(20).keys()]);
  await pool.end();
  await c.end();
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
