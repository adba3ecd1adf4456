//! LOCK TABLE, in all modes of PostgreSQL. What keeps off what stands in `txn`'s `table_locks`.
//!
//! Readers and writers of a table take ACCESS SHARE, ROW SHARE and ROW EXCLUSIVE by themselves, as long as their transactions run. A change of the
//! table's schema waits for each mode that is held by LOCK TABLE.
//!
//! A view stands for the tables that it reads, as in PostgreSQL. A lock is one of the node that it is taken at, which is the primary.

use super::extra::Words;
use super::privileges;
use super::work::Work;
use super::{DdlContext, DdlOutcome};
use crate::catalog::{self, Resolved};
use base::schema::{Relation, Schema, ViewDef, privilege};
use base::{Error, Oid, Result, SqlState};
use sqlparser::ast::ObjectName;
use sqlparser::tokenizer::Token;
use txn::{Stop, TableModes, Txn, WaitPolicy};

/// PostgreSQL's modes. Of two that begin with the same words the longer one comes first.
const MODES: [(&str, TableModes); 8] = [
    ("access share", TableModes::ACCESS_SHARE),
    ("row share", TableModes::ROW_SHARE),
    ("row exclusive", TableModes::ROW_EXCLUSIVE),
    ("share update exclusive", TableModes::SHARE_UPDATE_EXCLUSIVE),
    ("share row exclusive", TableModes::SHARE_ROW_EXCLUSIVE),
    ("share", TableModes::SHARE),
    ("exclusive", TableModes::EXCLUSIVE),
    ("access exclusive", TableModes::ACCESS_EXCLUSIVE),
];

/// A LOCK TABLE as it was written.
#[derive(Clone, Debug)]
pub struct LockTable {
    relations: Vec<ObjectName>,
    mode: TableModes,
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
        let mut mode = TableModes::ACCESS_EXCLUSIVE;
        if self.eat("in") {
            let known = MODES.iter().find(|m| self.eat(m.0));
            mode = known.ok_or_else(|| self.wrong())?.1;
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
            Resolved::Virtual(_) if l.mode == TableModes::ACCESS_SHARE => continue,
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
        let mut tables = vec![];
        match &relation {
            Relation::View(v) => under(&catalog.schema, v, ctx.role, l.mode, &mut tables)?,
            r => tables.push(r.id()),
        }
        for table in tables {
            let handle = catalog.table(table);
            let handle = handle.ok_or_else(|| Error::internal("a table without a handle"))?;
            txn.lock_table(handle, l.mode, wait)?;
        }
    }
    Ok(DdlOutcome {
        tag: "LOCK TABLE".into(),
        notices: vec![],
    })
}

/// The privileges of which one is enough for the mode.
fn bits(mode: TableModes) -> u32 {
    let strong = privilege::UPDATE | privilege::DELETE | privilege::TRUNCATE;
    match mode {
        TableModes::ACCESS_SHARE => privilege::SELECT,
        TableModes::ROW_EXCLUSIVE => strong | privilege::INSERT,
        _ => strong,
    }
}

fn check(schema: &Schema, role: Oid, relation: &Relation, mode: TableModes) -> Result<()> {
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
    mode: TableModes,
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
