// Sequelize: ENUM, which is made by DO, and findOrCreate, which makes a function of pg_temp.
const assert = require("node:assert");
const { Sequelize, DataTypes } = require("sequelize");

const db = new Sequelize("canon", "canon", "", { host: "127.0.0.1", port: Number(process.argv[2]), dialect: "postgres", logging: false });

async function main() {
  const Person = db.define("person", { name: { type: DataTypes.STRING, unique: true }, mood: DataTypes.ENUM("sad", "glad") });
  await db.sync();
  const [, made] = await Person.findOrCreate({ where: { name: "carl" }, defaults: { mood: "glad" } });
  assert.strictEqual(made, true);
  await db.close();
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
