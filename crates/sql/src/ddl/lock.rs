//! LOCK TABLE: the table stays as it is until the transaction ends.
//!
//! Rows have versions here, so readers and writers keep each other off by what they read and write, and the only thing that closes a
//! whole table is a change of its schema (`docs/decisions/0006`). The modes that readers and writers take by themselves (ACCESS SHARE,
//! ROW SHARE, ROW EXCLUSIVE) do not conflict with each other in PostgreSQL, only with what stronger modes and DDL take. So each of them
//! is one lock here: DDL waits for whoever holds it.
//!
//! A view stands for the tables that it reads, as in PostgreSQL.
//!
//! Left out on purpose: the modes that keep other readers or writers off, from SHARE UPDATE EXCLUSIVE on, which is LOCK TABLE's default,
//! too. There is no lock that each reader and writer of a table takes, and to pretend that there were one would be an answer that
//! callers build on: 0A000.

use super::extra::Words;
use super::privileges;
use super::work::Work;
use super::{DdlContext, DdlOutcome};
use crate::catalog::{self, Resolved};
use base::schema::{Relation, Schema, ViewDef, privilege};
use base::{Error, Oid, Result, SqlState};
use sqlparser::ast::ObjectName;
use sqlparser::tokenizer::Token;
use txn::{Stop, Txn, WaitPolicy};

/// PostgreSQL's modes, the strongest last.
const MODES: [&str; 8] = [
    "access share",
    "row share",
    "row exclusive",
    "share update exclusive",
    "share row exclusive",
    "share",
    "exclusive",
    "access exclusive",
];
const ACCESS_SHARE: usize = 0;
const ROW_EXCLUSIVE: usize = 2;
const ACCESS_EXCLUSIVE: usize = 7;

/// A LOCK TABLE as it was written.
#[derive(Clone, Debug)]
pub struct LockTable {
    relations: Vec<ObjectName>,
    /// Its place in [`MODES`].
    mode: usize,
    nowait: bool,
}

impl Words<'_> {
    pub(super) fn lock(&mut self) -> Result<LockTable> {
        self.expect("lock")?;
        self.eat("table");
        let mut relations = vec![];
        loop {
            self.eat("only");
            relations.push(self.name()?);
            let _ = self.0.consume_token(&Token::Mul);
            if !self.0.consume_token(&Token::Comma) {
                break;
            }
        }
        let mut mode = ACCESS_EXCLUSIVE;
        if self.eat("in") {
            let known = MODES.iter().position(|m| self.eat(m));
            mode = known.ok_or_else(|| self.wrong())?;
            self.expect("mode")?;
        }
        let nowait = self.eat("nowait");
        Ok(LockTable {
            relations,
            mode,
            nowait,
        })
    }
}

/// Runs the statement. May end with [`Stop::Blocked`] like any statement.
pub(super) fn execute(
    l: &LockTable,
    txn: &mut Txn,
    ctx: &DdlContext<'_>,
) -> Result<DdlOutcome, Stop> {
    if !ctx.in_transaction_block {
        return Err(Error::new(
            SqlState::NO_ACTIVE_SQL_TRANSACTION,
            "LOCK TABLE can only be used in transaction blocks",
        )
        .into());
    }
    let catalog = txn.catalog();
    let mut no_oid = || 0;
    let work = Work::new((*catalog.schema).clone(), ctx, &mut no_oid);
    let wait = match l.nowait {
        true => WaitPolicy::NoWait,
        false => WaitPolicy::Wait,
    };
    for name in &l.relations {
        let relation = match work.resolve(name)? {
            Resolved::Relation(r @ (Relation::Table(_) | Relation::View(_))) => r,
            // It cannot change.
            Resolved::Virtual(_) if l.mode == ACCESS_SHARE => continue,
            Resolved::Virtual(v) => {
                privileges::check(&catalog.schema, ctx.role, v.oid(), bits(l.mode))?;
                continue;
            }
            other => {
                return Err(Error::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("\"{}\" is not a table or view", other.name()),
                )
                .into());
            }
        };
        check(&catalog.schema, ctx.role, &relation, l.mode)?;
        if l.mode > ROW_EXCLUSIVE {
            let mode = MODES[l.mode].to_uppercase();
            return Err(Error::unsupported(format!("LOCK TABLE IN {mode} MODE")).into());
        }
        let mut tables = vec![];
        match &relation {
            Relation::View(v) => under(&catalog.schema, v, ctx.role, l.mode, &mut tables)?,
            r => tables.push(r.id()),
        }
        for table in tables {
            let handle = catalog.table(table);
            let handle = handle.ok_or_else(|| Error::internal("a table without a handle"))?;
            txn.lock_table(handle, wait)?;
        }
    }
    Ok(DdlOutcome {
        tag: "LOCK TABLE".into(),
        notices: vec![],
    })
}

/// The privileges of which one is enough for the mode.
fn bits(mode: usize) -> u32 {
    let strong = privilege::UPDATE | privilege::DELETE | privilege::TRUNCATE;
    match mode {
        ACCESS_SHARE => privilege::SELECT,
        ROW_EXCLUSIVE => strong | privilege::INSERT,
        _ => strong,
    }
}

fn check(schema: &Schema, role: Oid, relation: &Relation, mode: usize) -> Result<()> {
    let bits = bits(mode);
    if privileges::held(schema, role, relation) & bits != 0 {
        return Ok(());
    }
    privileges::check_relation(schema, role, relation, bits)
}

/// The tables that a view reads, through other views, too. Its owner must be allowed to lock them, or with `security_invoker` the role itself.
fn under(
    schema: &Schema,
    view: &ViewDef,
    role: Oid,
    mode: usize,
    tables: &mut Vec<Oid>,
) -> Result<()> {
    let reader = privileges::reader_in(schema, view.id, role);
    for &id in &view.depends_on {
        let Some(Resolved::Relation(relation)) = catalog::by_oid(schema, id) else {
            continue;
        };
        match &relation {
            Relation::Table(_) => {
                check(schema, reader, &relation, mode)?;
                tables.push(id);
            }
            Relation::View(v) => {
                check(schema, reader, &relation, mode)?;
                under(schema, v, role, mode, tables)?;
            }
            Relation::Sequence(_) => {}
        }
    }
    Ok(())
}
