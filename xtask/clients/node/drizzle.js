// Drizzle: its migrator, typed queries, relations by a lateral join, upserts, transactions.
const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { drizzle } = require("drizzle-orm/node-postgres");
const { migrate } = require("drizzle-orm/node-postgres/migrator");
const { eq, relations, sql, count } = require("drizzle-orm");
const { integer, jsonb, pgEnum, pgTable, serial, text } = require("drizzle-orm/pg-core");
const { Pool } = require("pg");

const mood = pgEnum("mood", ["sad", "glad"]);
const people = pgTable("people", { id: serial("id").primaryKey(), name: text("name").notNull().unique(), mood: mood("mood"), more: jsonb("more") });
const tasks = pgTable("tasks", { id: serial("id").primaryKey(), person: integer("person").references(() => people.id), title: text("title") });
const schema = {
  people,
  tasks,
  peopleRelations: relations(people, ({ many }) => ({ tasks: many(tasks) })),
  tasksRelations: relations(tasks, ({ one }) => ({ owner: one(people, { fields: [tasks.person], references: [people.id] }) })),
};

async function main() {
  const at = fs.mkdtempSync("drizzle");
  fs.mkdirSync(path.join(at, "meta"));
  const made = [
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TABLE people (id serial PRIMARY KEY, name text NOT NULL CONSTRAINT people_name_unique UNIQUE, mood mood, more jsonb)",
    "CREATE TABLE tasks (id serial PRIMARY KEY, person integer REFERENCES people (id), title text)",
  ];
  fs.writeFileSync(path.join(at, "0000_one.sql"), made.join(";\n--> statement-breakpoint\n"));
  fs.writeFileSync(path.join(at, "meta", "_journal.json"), JSON.stringify({ version: "7", dialect: "postgresql", entries: [{ idx: 0, version: "7", when: 1, tag: "0000_one", breakpoints: true }] }));
  const pool = new Pool({ host: "127.0.0.1", port: Number(process.argv[2]), user: "canon", database: "canon" });
  const db = drizzle(pool, { schema });
  for (let i = 0; i < 2; i++) await migrate(db, { migrationsFolder: at });
  await db.insert(people).values([{ name: "a", mood: "glad", more: { x: 1 } }, { name: "b" }]);
  await db.insert(tasks).values([{ person: 1, title: "t" }, { person: 1, title: "u" }]);
  await db.insert(people).values({ name: "b" }).onConflictDoUpdate({ target: people.name, set: { mood: "sad" } });
  const nested = await db.query.people.findMany({ with: { tasks: true }, orderBy: people.id });
  assert.deepStrictEqual(nested.map((p) => p.tasks.length), [2, 0]);
  assert.strictEqual(nested[1].mood, "sad");
  await db.transaction(async (t) => {
    await t.select().from(people).where(eq(people.id, 1)).for("update");
    await t.update(people).set({ name: sql`${people.name} || '!'` }).where(eq(people.id, 1));
    await t.transaction(async (inner) => inner.rollback()).catch(() => {});
  }, { isolationLevel: "serializable" });
  assert.deepStrictEqual(await db.select({ name: people.name, n: count(tasks.id) }).from(people).leftJoin(tasks, eq(tasks.person, people.id)).groupBy(people.name).orderBy(people.name), [{ name: "a!", n: 2 }, { name: "b", n: 0 }]);
  await pool.end();
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
