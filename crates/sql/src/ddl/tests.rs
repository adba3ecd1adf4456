//! Runs `tests/fixtures/ddl.sql` and compares with what PostgreSQL 15 answers (`ddl.out`, written by `regenerate.sh` there).

use super::extra;
use super::work::Work;
use super::*;
use base::schema::BOOTSTRAP_ROLE;
use base::{Type, id::FIRST_USER_OID};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Tokenizer;
use std::fmt::Write;

/// A binder that believes everything; a query has one column `a` of type int.
pub(crate) struct Believes;

impl Analyzer for Believes {
    fn writable_columns(&self, _: &Schema, _: &ViewDef) -> Result<Vec<bool>> {
        Ok(vec![])
    }

    fn query(&self, _: &Schema, _: &[String], _: &Query) -> Result<QueryShape> {
        Ok(QueryShape {
            stars: vec![],
            columns: vec![("a".into(), Type::Int4.into())],
            depends_on: vec![],
        })
    }
    fn check(&self, _: &Schema, _: &[String], _: &TableDef, _: &Expr) -> Result<()> {
        Ok(())
    }
    fn default(&self, _: &Schema, _: &[String], _: &Column, _: &Expr) -> Result<()> {
        Ok(())
    }
    fn generated(
        &self,
        _: &Schema,
        _: &[String],
        _: &TableDef,
        _: &Column,
        _: &Expr,
    ) -> Result<()> {
        Ok(())
    }
    fn index_expression(
        &self,
        _: &Schema,
        _: &[String],
        _: &TableDef,
        _: (&Expr, &'static str),
    ) -> Result<ColumnType> {
        Ok(Type::Int4.into())
    }
    fn transform(
        &self,
        _: &Schema,
        _: &[String],
        _: (&TableDef, &Column),
        _: &Expr,
        rows: &[Vec<Value>],
    ) -> Result<Vec<Value>> {
        Ok(vec![Value::Null; rows.len()])
    }
    fn evaluate_default(
        &self,
        _: &Schema,
        _: &[String],
        _: &Column,
        _: &Expr,
    ) -> Result<Option<Value>> {
        Ok(Some(Value::Int4(5)))
    }
    fn evaluate_volatile(&self, _: &Schema, _: &[String], _: &Column, _: &Expr) -> Result<Value> {
        Ok(Value::Null)
    }
}

/// A schema that statements change, without a database.
pub(crate) struct Bench {
    pub schema: Schema,
    pub role: Oid,
    next: Oid,
}

impl Bench {
    pub fn new() -> Bench {
        Bench {
            schema: Schema::bootstrap("canon"),
            role: BOOTSTRAP_ROLE,
            next: FIRST_USER_OID,
        }
    }

    pub fn run(&mut self, sql: &str) -> Result<DdlOutcome> {
        let path = ["canon".to_string(), "public".to_string()];
        let ctx = DdlContext {
            role: self.role,
            session_user: self.role,
            database: "canon",
            search_path: &path,
            analyzer: &Believes,
            settings: &OutputSettings::default(),
            random_bytes: &|b| b.fill(7),
            check_setting: &|_, _| Ok(()),
            in_transaction_block: false,
        };
        let next = &mut self.next;
        let mut new_oid = || {
            *next += 1;
            *next
        };
        let mut work = Work::new(self.schema.clone(), &ctx, &mut new_oid);
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql.trim().trim_end_matches(';'))
            .tokenize_with_location()
            .unwrap();
        let tag = match extra::parse(&tokens)? {
            Some(e) => work.extra(&e)?,
            None => {
                let mut p = Parser::new(&PostgreSqlDialect {}).with_tokens_with_locations(tokens);
                let s = p
                    .parse_statement()
                    .map_err(|e| Error::new(SqlState::SYNTAX_ERROR, e.to_string()))?;
                assert!(is_ddl(&s), "{sql}");
                work.statement(&s)?
            }
        };
        let (_, changes, notices) = work.finish();
        self.schema = self.schema.apply(&changes);
        Ok(DdlOutcome { tag, notices })
    }
}

fn shown(r: Result<DdlOutcome>) -> String {
    let mut out = String::new();
    match r {
        Ok(o) => {
            for n in o.notices {
                writeln!(out, "{}:  {}: {}", n.severity, n.code, n.message).unwrap();
                if !n.detail.is_empty() {
                    writeln!(out, "DETAIL:  {}", n.detail).unwrap();
                }
            }
            writeln!(out, "{}", o.tag).unwrap();
        }
        Err(e) => {
            let f = e.fields();
            writeln!(out, "ERROR:  {}: {}", f.code, f.message).unwrap();
            if !f.detail.is_empty() {
                writeln!(out, "DETAIL:  {}", f.detail).unwrap();
            }
            if !f.hint.is_empty() {
                writeln!(out, "HINT:  {}", f.hint).unwrap();
            }
        }
    }
    out
}

#[test]
fn ddl_answers_as_postgresql_does() {
    let script = include_str!("../../tests/fixtures/ddl.sql");
    let wanted = include_str!("../../tests/fixtures/ddl.out");
    let mut bench = Bench::new();
    let mut differences = String::new();
    let wanted = format!("\n{wanted}");
    let mut wanted = wanted.split("\n> ").skip(1);
    for line in script.lines() {
        let answer = wanted.next().expect("one answer per statement");
        let (statement, answer) = answer.split_once('\n').expect("statement, then its answer");
        assert_eq!(statement, line, "the fixtures belong together");
        let got = shown(bench.run(line));
        if got.trim_end() != answer.trim_end() {
            write!(
                differences,
                "> {line}\n--- PostgreSQL\n{answer}\n--- here\n{got}"
            )
            .unwrap();
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}
