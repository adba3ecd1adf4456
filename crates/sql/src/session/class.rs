//! What a statement does, told before it runs. This is the one place that says so.
//!
//! | asked by | what follows |
//! |---|---|
//! | `forward::place` | where the statement runs: here, at a site, at the primary |
//! | `copy` | whether COPY of a statement's rows writes |
//! | the test of `effect` | that the scan of a text never promises more than is said here |
//!
//! The tree tells of changes of rows, locks and the rest: in CTEs, in parts of a UNION, in subqueries of FROM. What a function does stands in the
//! registry (`functions::effect`). Its name is looked for among the words of the text, so a name that is only mentioned counts: the statement goes
//! to the primary, which is slower and as right.
//!
//! Left out on purpose: subqueries inside of expressions, which can lock rows but not change them, and what the text does not show (a
//! view, a default). Both are found when the statement runs.

use crate::functions::effect::Effect;
use crate::functions::registry;
use sqlparser::ast::{Query, SetExpr, Statement, TableFactor, TableWithJoins, UtilityOption};

/// Where a statement that has a plan may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// It changes nothing.
    Anywhere,
    /// It changes rows: at the primary, or at a site.
    Rows,
    /// It locks rows: the same.
    Locks,
    /// It draws numbers of sequences, and changes nothing else: the same.
    Numbers,
    Primary,
}

/// What running a statement does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class {
    /// It changes rows.
    pub rows: bool,
    /// It locks rows.
    pub locks_rows: bool,
    /// It changes what is neither a row nor a lock: the schema, say.
    pub more: bool,
    /// What the functions do together that its text names.
    pub functions: Effect,
}

impl Class {
    /// The class of this statement. EXPLAIN without ANALYZE does nothing.
    pub fn of(s: &Statement, text: &str) -> Class {
        let mut class = Class::default();
        let inside = match s {
            Statement::Explain {
                statement,
                analyze,
                options,
                ..
            } => {
                if !runs_inside(*analyze, options.as_deref()) {
                    return class;
                }
                statement.as_ref()
            }
            s => s,
        };
        class.statement(inside);
        if !std::ptr::eq(inside, s) {
            // What is explained runs at a place that may run all of it.
            class.more |= class.rows || class.locks_rows;
        }
        class.functions = functions_of(text);
        class
    }

    /// Whether it changes or locks something, or draws from a sequence.
    pub fn writes(self) -> bool {
        self.runs() != Runs::Anywhere
    }

    /// Where it may run.
    pub fn runs(self) -> Runs {
        match self {
            c if c.more || c.functions.at_primary => Runs::Primary,
            c if c.locks_rows => Runs::Locks,
            c if c.rows => Runs::Rows,
            c if c.functions.draws => Runs::Numbers,
            _ => Runs::Anywhere,
        }
    }

    fn statement(&mut self, s: &Statement) {
        match s {
            Statement::Query(q) => self.query(q),
            Statement::Insert(i) => {
                self.rows = true;
                i.source.iter().for_each(|q| self.query(q));
            }
            Statement::Update { .. } | Statement::Delete(_) | Statement::Merge { .. } => {
                self.rows = true;
            }
            _ => self.more = true,
        }
    }

    fn query(&mut self, q: &Query) {
        self.locks_rows |= !q.locks.is_empty();
        let with = q.with.iter().flat_map(|w| &w.cte_tables);
        with.for_each(|c| self.query(&c.query));
        self.body(&q.body);
    }

    fn body(&mut self, body: &SetExpr) {
        // A long UNION leans to the left: that side is no further call.
        let mut body = body;
        while let SetExpr::SetOperation { left, right, .. } = body {
            self.body(right);
            body = left.as_ref();
        }
        match body {
            SetExpr::Select(s) => {
                self.more |= s.into.is_some();
                s.from.iter().for_each(|t| self.tables(t));
            }
            SetExpr::Query(q) => self.query(q),
            SetExpr::Insert(s) | SetExpr::Update(s) | SetExpr::Delete(s) | SetExpr::Merge(s) => {
                self.statement(s);
            }
            _ => {}
        }
    }

    fn tables(&mut self, t: &TableWithJoins) {
        let joined = t.joins.iter().map(|j| &j.relation);
        for t in std::iter::once(&t.relation).chain(joined) {
            match t {
                TableFactor::Derived { subquery, .. } => self.query(subquery),
                TableFactor::NestedJoin {
                    table_with_joins, ..
                } => self.tables(table_with_joins),
                _ => {}
            }
        }
    }
}

/// Whether EXPLAIN runs the statement. An option ANALYZE counts, whatever its value.
fn runs_inside(analyze: bool, options: Option<&[UtilityOption]>) -> bool {
    let named = |o: &UtilityOption| o.name.value.eq_ignore_ascii_case("analyze");
    analyze || options.unwrap_or_default().iter().any(named)
}

/// What the functions do together whose names stand in the text.
fn functions_of(text: &str) -> Effect {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let mut all = Effect::default();
    let words = text.split(|c| !part(c));
    words.for_each(|w| all |= registry::effect(w));
    all
}

#[cfg(test)]
mod tests {
    use super::super::parse::{Parsed, Stmt, parse};
    use super::super::utility::Utility;
    use super::*;
    use crate::effect::{self as scan, Effect as Scan};
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::{Token, Tokenizer};
    use workload::rng::Rng;

    fn class(sql: &str) -> Class {
        let parsed = parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        match &parsed[0].stmt {
            Stmt::Sql(s) => Class::of(s, sql),
            _ => panic!("{sql}: not read by sqlparser"),
        }
    }

    #[test]
    fn where_statements_run() {
        for (sql, runs) in [
            ("SELECT 1", Runs::Anywhere),
            ("SELECT nextvals, 'pg_advisory' FROM t", Runs::Anywhere),
            ("SELECT 'nextval'", Runs::Numbers),
            ("SELECT pg_promote()", Runs::Anywhere),
            (
                "VALUES (1, (SELECT max(a) FROM t -- FOR UPDATE\n))",
                Runs::Anywhere,
            ),
            ("EXPLAIN INSERT INTO t VALUES (1)", Runs::Anywhere),
            ("EXPLAIN (COSTS off) DELETE FROM t", Runs::Anywhere),
            ("INSERT INTO t VALUES (1)", Runs::Rows),
            ("UPDATE t SET a = 1", Runs::Rows),
            (
                "WITH x AS (DELETE FROM t RETURNING a) SELECT * FROM x",
                Runs::Rows,
            ),
            (
                "SELECT * FROM (WITH x AS (SELECT 1) SELECT * FROM x) y, t FOR UPDATE",
                Runs::Locks,
            ),
            ("SELECT * FROM (SELECT a FROM t FOR SHARE) x", Runs::Locks),
            ("SELECT 1 AS a INTO t", Runs::Primary),
            ("SELECT a FROM (SELECT nextval('s') AS a) x", Runs::Numbers),
            ("SELECT * FROM nextval('s')", Runs::Numbers),
            ("SELECT PG_CATALOG.\"nextval\"('s')", Runs::Numbers),
            ("SELECT 1 WHERE pg_try_advisory_lock(1)", Runs::Primary),
            ("INSERT INTO t VALUES (nextval('s'))", Runs::Rows),
            ("SELECT setval('s', nextval('r'))", Runs::Primary),
            ("EXPLAIN ANALYZE SELECT nextval('s')", Runs::Numbers),
            ("EXPLAIN ANALYZE INSERT INTO t VALUES (1)", Runs::Primary),
            (
                "EXPLAIN (ANALYZE, COSTS off) UPDATE t SET a = 1",
                Runs::Primary,
            ),
            ("CREATE TABLE t (a int)", Runs::Primary),
        ] {
            assert_eq!(class(sql).runs(), runs, "{sql}");
        }
    }

    #[test]
    fn functions_are_found_in_any_case() {
        assert!(class("SELECT NextVal('s')").functions.draws);
        assert!(class("SELECT SETVAL('s', 1)").functions.at_primary);
        assert!(class("SELECT pg_advisory_lock(1)").functions.ties);
        assert!(class("SELECT count(pg_notify('a', 'b'))").functions.lasting);
    }

    /// As [`functions_of`], without names inside of literals and quotes.
    fn functions_called(text: &str) -> Effect {
        let mut tokens = Tokenizer::new(&PostgreSqlDialect {}, text);
        // The product reads some texts in another way first.
        let Ok(tokens) = tokens.tokenize() else {
            return functions_of(text);
        };
        let mut all = Effect::default();
        for t in tokens {
            if let Token::Word(w) = t {
                all |= registry::effect(&w.value);
            }
        }
        all
    }

    /// What the scan of a text must say of this statement at least.
    fn of_tree(p: &Parsed) -> Scan {
        let mut e = Scan::default();
        match &p.stmt {
            Stmt::Extra(_) => e.writes = true,
            Stmt::Sql(s) => {
                let c = Class::of(s, &p.text);
                let called = functions_called(&p.text);
                e.writes = c.rows || c.more || called.lasting;
                e.draws = called.draws;
                let temporary = matches!(&**s, Statement::CreateTable(t) if t.temporary);
                e.ties = called.ties || temporary;
            }
            Stmt::Utility(u) => of_utility(u, &mut e),
        }
        e
    }

    fn of_utility(u: &Utility, e: &mut Scan) {
        match u {
            Utility::Begin { modes, .. } => {
                (e.begins, e.block) = (true, Some(true));
                e.reads_only = modes.read_only == Some(true);
            }
            Utility::SetTransaction(modes) | Utility::SetCharacteristics(modes) => {
                e.reads_only = modes.read_only == Some(true);
            }
            Utility::Commit { chain } => (e.commits, e.block) = (true, Some(*chain)),
            Utility::Rollback { chain } => (e.rolls_back, e.block) = (true, Some(*chain)),
            Utility::Declare { query, hold, .. } => {
                *e = of_tree(query);
                e.ties |= hold;
                e.writes &= hold;
            }
            Utility::ExplainExecute { options, .. } => {
                e.writes = options.to_ascii_lowercase().contains("analy");
            }
            Utility::Copy(c) => e.writes = c.writes(),
            Utility::Execute { .. } | Utility::Notify { .. } => e.writes = true,
            Utility::Listen(_) => e.ties = true,
            _ => {}
        }
    }

    fn scan_is_careful(sql: &str, parsed: &[Parsed]) {
        let pieces = scan::statements(sql);
        assert_eq!(pieces.len(), parsed.len(), "statements of {sql}");
        for (piece, p) in pieces.iter().zip(parsed) {
            let (said, least) = (scan::effect(piece.text), of_tree(p));
            let ends = |e: Scan| (e.begins, e.commits, e.rolls_back, e.block);
            assert_eq!(ends(said), ends(least), "{}", piece.text);
            for (what, said, least) in [
                ("writes", said.writes, least.writes),
                ("draws", said.draws, least.draws),
                ("ties", said.ties, least.ties),
                ("reads only", said.reads_only, least.reads_only),
            ] {
                assert!(said || !least, "{what}: {}", piece.text);
            }
        }
    }

    /// Comments with what a scan could take for words, quotes and ends of statements.
    const NOISE: [&str; 4] = [
        " /* ; ' \" $$ /* x */ COMMIT */ ",
        " -- ; ' $$ BEGIN\n",
        "\t\n ",
        " /**/ ",
    ];

    #[test]
    fn the_scan_of_a_text_is_at_least_as_careful() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../canon/tests/slt");
        let mut random = Rng::new(1);
        let (mut seen, mut changed) = (0, 0);
        for file in std::fs::read_dir(dir).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let mut file = String::new();
            for block in text.split("\n\n") {
                let lines = block.lines().filter(|l| !l.starts_with('#')).skip(1);
                let lines: Vec<&str> = lines.take_while(|l| *l != "----").collect();
                let sql = lines.join("\n");
                let Ok(parsed) = parse(&sql) else { continue };
                scan_is_careful(&sql, &parsed);
                seen += parsed.len();
                // The same with noise between words. Where it fell into a literal, the literals differ and nothing else.
                let mut noisy = String::new();
                for c in sql.chars() {
                    match c {
                        ' ' if random.percent(20) => noisy += NOISE[random.below(4) as usize],
                        c => noisy.push(c),
                    }
                }
                if let Ok(parsed) = parse(&noisy) {
                    scan_is_careful(&noisy, &parsed);
                    changed += parsed.len();
                }
                file += &sql;
                file += "\n;";
            }
            let parsed = parse(&file).unwrap();
            scan_is_careful(&file, &parsed);
        }
        assert!(seen > 2500 && changed > 1500, "{seen} {changed}");
    }

    #[test]
    fn the_scan_is_as_careful_with_other_files() {
        let here = env!("CARGO_MANIFEST_DIR");
        let mut seen = 0;
        for file in [
            "tests/fixtures/ddl.sql",
            "../canon/tests/describe/describe.sql",
            "../canon/tests/describe/alter.sql",
        ] {
            let text = std::fs::read_to_string(format!("{here}/{file}")).unwrap();
            for sql in text.split_inclusive(";\n") {
                if let Ok(parsed) = parse(sql) {
                    scan_is_careful(sql, &parsed);
                    seen += parsed.len();
                }
            }
        }
        assert!(seen > 150, "{seen}");
    }

    #[test]
    fn the_scan_agrees_where_the_tests_of_sql_say_nothing() {
        for sql in [
            "DECLARE c CURSOR WITH HOLD FOR SELECT setval('s', 1)",
            "DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1",
            "COPY (DELETE FROM t RETURNING a) TO STDOUT",
            "COPY (SELECT 1) TO STDOUT",
            "EXPLAIN (ANALYZE) SELECT nextval('s')",
            "(SELECT pg_notify('a', 'b'))",
            "START TRANSACTION READ ONLY; COMMIT AND CHAIN; ROLLBACK AND NO CHAIN; END",
            "ROLLBACK TO a; ROLLBACK TO SAVEPOINT a; ROLLBACK WORK TO a",
            "CREATE TEMP TABLE t (a int)",
            "SELECT E'\\'; COMMIT; --', U&'a;', $a$ ; $b$ ; $a$",
        ] {
            let parsed = parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
            scan_is_careful(sql, &parsed);
        }
    }

    #[test]
    fn a_long_tree_is_walked() {
        let sql = format!(
            "{} SELECT 1 AS a INTO t",
            "SELECT 1 UNION ALL ".repeat(1500)
        );
        if let Ok(parsed) = parse(&sql)
            && let Stmt::Sql(s) = &parsed[0].stmt
        {
            assert_eq!(Class::of(s, &sql).runs(), Runs::Primary);
        }
        let nested = "SELECT * FROM (".repeat(40) + "SELECT a FROM t FOR SHARE" + &") x".repeat(40);
        assert_eq!(class(&nested).runs(), Runs::Locks);
    }
}
