//! What a plan reads, named before it is read: tables by their storages, whether it looks at the schema, whether at a sequence.
//!
//! A replica asks for these before it runs the plan at a position that it does not show yet (`reading`). Everything that any part of the
//! plan may read is in the list, whether or not a run comes to it. Tables that are only written, and those that only foreign keys look at,
//! are not reads of the statement: they are looked at where it writes.

use super::node::{CatalogSource, Node, Plan, Prepared, Root, Touches};
use base::schema::privilege;
use base::{Oid, RelId};
use txn::TableModes;

impl Prepared {
    /// What it reads; found out when first asked for.
    pub fn touches(&self) -> &Touches {
        self.touches.get_or_init(|| Touches::of(&self.plan))
    }

    /// The tables that it uses, and the locks that it takes on them by itself.
    pub fn uses(&self) -> &[(Oid, TableModes)] {
        self.uses.get_or_init(|| {
            let plan = match &self.plan.root {
                Root::Explain { inner, .. } => &inner.plan,
                _ => &self.plan,
            };
            let roots = plan.steps.iter().map(|s| &s.root).chain([&plan.root]);
            let written: Vec<Oid> = roots.filter_map(Root::target).collect();
            let mut uses: Vec<(Oid, TableModes)> = vec![];
            for n in &self.privileges {
                let modes = match () {
                    () if written.contains(&n.relation) => TableModes::ROW_EXCLUSIVE,
                    // The right that FOR UPDATE needs.
                    () if n.bits & privilege::UPDATE != 0 => TableModes::ROW_SHARE,
                    () => TableModes::ACCESS_SHARE,
                };
                match uses.iter_mut().find(|u| u.0 == n.relation) {
                    Some(u) => u.1 = u.1.with(modes),
                    None => uses.push((n.relation, modes)),
                }
            }
            uses
        })
    }
}

impl Touches {
    /// What this plan reads.
    pub(crate) fn of(plan: &Plan) -> Touches {
        let mut t = Touches::default();
        t.plan(plan);
        t
    }

    fn plan(&mut self, p: &Plan) {
        self.catalog |= p.looks_up || p.by_definitions;
        self.all_names |= p.looks_up;
        self.unversioned |= p.sequences;
        for root in p.steps.iter().map(|s| &s.root).chain([&p.root]) {
            self.root(root);
        }
        for n in &p.subplans {
            self.node(n);
        }
    }

    fn root(&mut self, root: &Root) {
        match root {
            Root::Rows(n) => self.node(n),
            Root::Insert(i) => {
                self.node(&i.input);
                if i.conflict.is_some() {
                    i.handle.storages().for_each(|id| self.table(id));
                }
            }
            Root::Update(u) => self.node(&u.input),
            Root::Delete(d) => self.node(&d.input),
            Root::Merge(m) => self.node(&m.input),
            Root::Explain { options, inner, .. } => {
                let of = Touches::of(&inner.plan);
                // A plan is one of the newest schema's, as its result is.
                self.catalog |= !of.is_empty();
                self.all_names |= !of.is_empty();
                if options.analyze {
                    self.plan(&inner.plan);
                }
            }
        }
    }

    fn table(&mut self, id: RelId) {
        if !self.tables.contains(&id) {
            self.tables.push(id);
        }
    }

    fn node(&mut self, n: &Node) {
        match n {
            Node::Once(_)
            | Node::Values(_)
            | Node::Function(_)
            | Node::CteScan(_)
            | Node::WorkTable(_) => {}
            Node::Scan(s) => {
                if let Some(h) = &s.handle {
                    h.storages().for_each(|id| self.table(id));
                }
            }
            Node::Virtual(v) => match v.source {
                // Statistics and the like are about this node.
                CatalogSource::Fixed(t)
                    if t.name().starts_with("pg_stat") || t.name().starts_with("canon_") => {}
                CatalogSource::Fixed(t) if t.name() == "pg_sequences" => self.unversioned = true,
                CatalogSource::Fixed(t) => {
                    let own = [
                        "pg_settings",
                        "pg_cursors",
                        "pg_prepared_statements",
                        "pg_locks",
                    ];
                    let names = !own.contains(&t.name());
                    self.catalog |= names;
                    self.all_names |= names;
                }
                CatalogSource::Sequence(_) => self.unversioned = true,
            },
            Node::Filter(x) => self.node(&x.input),
            Node::Project(x) => self.node(&x.input),
            Node::ProjectSet(x) => self.node(&x.input),
            Node::NestLoop(x) => {
                self.node(&x.left);
                self.node(&x.right);
            }
            Node::HashJoin(x) => {
                self.node(&x.left);
                self.node(&x.right);
            }
            Node::FullJoin(x) => {
                self.node(&x.left);
                self.node(&x.right);
            }
            Node::Materialize(x) => self.node(&x.input),
            Node::Lookup(x) => self.node(&x.input),
            Node::Sort(x) => self.node(&x.input),
            Node::Aggregate(x) => self.node(&x.input),
            Node::Window(x) => self.node(&x.input),
            Node::Unique(x) => self.node(&x.input),
            Node::Limit(x) => self.node(&x.input),
            Node::Append(x) => x.inputs.iter().for_each(|n| self.node(n)),
            Node::SetOp(x) => {
                self.node(&x.left);
                self.node(&x.right);
            }
            Node::With(x) => {
                x.ctes.iter().for_each(|c| self.node(&c.plan));
                self.node(&x.input);
            }
            Node::Recursive(x) => {
                self.node(&x.first);
                self.node(&x.step);
            }
            Node::Lock(x) => self.node(&x.input),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;
    use base::Value;

    #[test]
    fn every_table_that_a_plan_reads_is_named() {
        let db = TestDb::new();
        db.run(
            "CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY, v int REFERENCES a);
             CREATE TABLE c (id int PRIMARY KEY, v int)",
        )
        .unwrap();
        let id = |t: &str| {
            let p = db.prepare(&format!("SELECT * FROM {t}"), &[]).unwrap();
            p.touches().tables[0]
        };
        let ids = [id("a"), id("b"), id("c")];
        for (sql, want) in [
            ("SELECT 1", ""),
            ("SELECT * FROM a WHERE id = 1", "a"),
            ("SELECT count(*) FROM a WHERE v > 3", "a"),
            ("SELECT * FROM a JOIN b USING (id)", "ab"),
            (
                "SELECT * FROM a, LATERAL (SELECT * FROM c WHERE c.id = a.v) x",
                "ac",
            ),
            ("SELECT (SELECT v FROM b WHERE b.id = a.id) FROM a", "ab"),
            ("SELECT 1 WHERE EXISTS (SELECT 1 FROM c)", "c"),
            (
                "SELECT v FROM a WHERE v IN (SELECT v FROM b WHERE v NOT IN (SELECT id FROM c))",
                "abc",
            ),
            ("WITH x AS (SELECT * FROM c) SELECT * FROM x, x y", "c"),
            (
                "WITH RECURSIVE r AS (SELECT id, v FROM a UNION SELECT b.id, b.v FROM b JOIN r ON r.v = b.id) SELECT * FROM r",
                "ab",
            ),
            (
                "SELECT id FROM a UNION ALL SELECT id FROM b EXCEPT SELECT id FROM c",
                "abc",
            ),
            (
                "SELECT DISTINCT v FROM a ORDER BY v LIMIT (SELECT max(id) FROM b)",
                "ab",
            ),
            ("SELECT * FROM a FOR UPDATE", "a"),
            ("INSERT INTO b SELECT * FROM a", "a"),
            ("INSERT INTO b VALUES (1, 2)", ""),
            ("INSERT INTO b VALUES (1, 2) ON CONFLICT DO NOTHING", "b"),
            ("UPDATE b SET v = (SELECT max(v) FROM c)", "bc"),
            ("DELETE FROM a USING c WHERE a.id = c.id", "ac"),
            (
                "MERGE INTO a USING c ON a.id = c.id WHEN MATCHED AND EXISTS (SELECT 1 FROM b) THEN DELETE",
                "abc",
            ),
        ] {
            let p = db.prepare(sql, &[]).unwrap();
            let mut got = p.touches().tables.clone();
            got.sort_unstable();
            let mut want: Vec<_> = want.bytes().map(|c| ids[(c - b'a') as usize]).collect();
            want.sort_unstable();
            assert_eq!(got, want, "{sql}");
            assert!(!p.touches().catalog && !p.touches().unversioned, "{sql}");
        }
        let flags = |sql: &str| {
            let p = db.prepare(sql, &[]).unwrap();
            let t = p.touches();
            (t.tables.len(), t.catalog, t.unversioned)
        };
        assert_eq!(flags("SELECT * FROM pg_class"), (0, true, false));
        assert_eq!(flags("EXPLAIN SELECT * FROM a"), (0, true, false));
        assert_eq!(flags("EXPLAIN ANALYZE SELECT * FROM a"), (1, true, false));
        assert_eq!(flags("EXPLAIN SELECT 1"), (0, false, false));
        assert_eq!(flags("SELECT current_schema"), (0, true, false));
        assert_eq!(flags("SELECT current_schemas(true)"), (0, true, false));
        assert_eq!(flags("SELECT * FROM pg_settings"), (0, false, false));
        assert_eq!(flags("SELECT * FROM pg_sequences"), (0, false, true));
        assert_eq!(flags("SELECT * FROM pg_stat_activity"), (0, false, false));
        // Names of relations, however they come to be looked up.
        for sql in [
            "SELECT 'a'::regclass::oid",
            "SELECT 'public'::regnamespace::oid",
            "SELECT 1 WHERE 5 = 'a'::regclass",
            "SELECT 16384::regclass",
            "SELECT 16384::oid::regclass::text",
            "SELECT format('%s', 16384::regclass)",
            "SELECT $1::text::regclass::oid",
            "SELECT concat($1::regclass)",
            "SELECT 2200::regnamespace",
        ] {
            assert_eq!(flags(sql), (0, true, false), "{sql}");
        }
        for sql in ["SELECT 25::regtype", "SELECT pg_typeof(1)::text"] {
            assert_eq!(flags(sql), (0, false, false), "{sql}");
        }
    }

    /// Any change of the schema counts for a plan that looks names up, and not for one that is made of a view.
    #[test]
    fn point_reads_name_their_key() {
        let db = TestDb::new();
        db.run("CREATE TABLE k (a int, b text, v int, PRIMARY KEY (a, b))")
            .unwrap();
        let key = |sql: &str, params: &[Value]| {
            let p = db.prepare(sql, &[]).unwrap();
            p.point_key(params).map(|(_, k)| k)
        };
        let by_constant = key("SELECT v FROM k WHERE a = 7 AND b = 'x'", &[]);
        let by_parameter = key(
            "SELECT v FROM k WHERE b = $1 AND a = $2",
            &[Value::text("x"), Value::Int4(7)],
        );
        assert!(by_constant.is_some());
        assert_eq!(by_constant, by_parameter);
        assert_ne!(
            by_constant,
            key("SELECT v FROM k WHERE a = 7 AND b = 'y'", &[])
        );
        for other in [
            "SELECT v FROM k WHERE a = 7",
            "SELECT v FROM k WHERE a = 7 AND b > 'x'",
            "SELECT v FROM k WHERE a IN (7, 8) AND b = 'x'",
            "SELECT count(*) FROM k WHERE a = 7 AND b = 'x'",
        ] {
            assert_eq!(key(other, &[]), None, "{other}");
        }
    }
}
