// Sequelize: sync, alter, associations, bulk upserts, transactions.
const assert = require("node:assert");
const { Sequelize, DataTypes, Transaction } = require("sequelize");

const db = new Sequelize("canon", "canon", "", { host: "127.0.0.1", port: Number(process.argv[2]), dialect: "postgres", logging: false });

async function main() {
  const shape = { name: { type: DataTypes.STRING, unique: true }, mood: DataTypes.STRING, tags: DataTypes.ARRAY(DataTypes.STRING), more: DataTypes.JSONB };
  const Person = db.define("person", shape);
  const Task = db.define("task", { title: DataTypes.TEXT });
  Person.hasMany(Task);
  Task.belongsTo(Person);
  await db.sync();
  const ada = await Person.create({ name: "ada", mood: "glad", tags: ["x"], more: { a: { b: 1 } }, tasks: [{ title: "t" }] }, { include: Task });
  assert.strictEqual(ada.tasks[0].personId, ada.id);
  assert.strictEqual((await Person.findOne({ where: { "more.a.b": 1 }, include: Task })).tasks.length, 1);
  await Person.bulkCreate([{ name: "ada", mood: "sad" }, { name: "bob" }], { updateOnDuplicate: ["mood"] });
  assert.strictEqual((await Person.findOne({ where: { name: "ada" } })).mood, "sad");
  await db.transaction({ isolationLevel: Transaction.ISOLATION_LEVELS.SERIALIZABLE }, async (transaction) => {
    await Person.findAll({ lock: true, transaction });
    await Person.increment({ id: 10 }, { where: { name: "nobody" }, transaction });
  });
  db.define("person", { ...shape, years: DataTypes.INTEGER });
  await db.sync({ alter: true });
  assert.ok("years" in (await db.getQueryInterface().describeTable("people")));
  await db.getQueryInterface().showIndex("people");
  await db.drop();
  await db.close();
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
