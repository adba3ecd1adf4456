//! Statements inside a transaction that somebody else runs: SQL for the embedded library.
//!
//! ```text
//! library   begin_statement ──▶ Embedded::run (parse, plan, one run) ──▶ end_statement        again on Blocked and Restart
//!                 txn ──lent──▶ the session's block ──given back──▶ txn
//! ```
//! It is a session without a client: plans come from the same cache, names and functions mean the same, and what it is lent is
//! inside a block that it cannot end. Rows are kept and given back whole.
//!
//! Left out on purpose: statements that are a session's own business (BEGIN and its kin, SET, SHOW, COPY, PREPARE, cursors);
//! 0A000. A transaction is the closure that the library runs.

use super::block::{Block, Kind};
use super::client::{Client, Column, CopyInput, Format, Severity};
use super::parse::{Stmt, parse_one};
use super::plans::Cached;
use super::prepared::Body;
use super::row::Formats;
use super::run::{Run, Sink, Unfinished};
use super::{Peer, Session, Shared, planner_api};
use crate::engine::Engine;
use crate::types::text;
use base::schema::BOOTSTRAP_ROLE;
use base::{ColumnType, Error, Result, SqlState, Type, Value};
use futures::FutureExt;
use std::sync::Arc;
use txn::{Stop, Txn};

/// Stack for reading and planning a text: bytes, as the server's threads have.
const STACK: usize = 64 << 20;

/// What a statement gave.
#[derive(Debug, Default)]
pub struct Answer {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Value>>,
    /// Rows inserted, updated or deleted; of a query, the rows it gave.
    pub affected: u64,
}

/// A session for transactions of others, one after the other.
pub struct Embedded<E: Engine>(Session<E>);

impl<E: Engine> Embedded<E> {
    /// A session of the superuser.
    pub fn new(shared: &Arc<Shared<E>>) -> Result<Embedded<E>> {
        let schema = shared.engine.catalog().schema.clone();
        let owner = schema
            .role(BOOTSTRAP_ROLE)
            .ok_or_else(|| Error::internal("a database without its owner"))?;
        let mut secret = [0; 4];
        shared.host.random(&mut secret);
        let handle = shared.sessions.register(i32::from_le_bytes(secret));
        let session = Session::start(shared, &owner.name, handle, Peer::default(), &[])?;
        // The library runs a transaction again by itself, so it has the strongest level whatever the database stores for its clients.
        let mut settings = session.state.settings.borrow_mut();
        settings.initialise("default_transaction_isolation", "serializable");
        drop(settings);
        Ok(Embedded(session))
    }

    /// Begins to serve a transaction: `now()` is fixed.
    pub fn begin(&mut self) {
        let now = self.0.state.now();
        self.0.output.now = now;
        self.0.state.statement_start.set(now);
        self.0.block = Block::default();
        self.0.block.kind = Kind::Explicit;
    }

    /// The transaction has ended: what `set_config` changed in it is undone.
    pub fn end(&mut self) {
        self.0.block = Block::default();
        self.0.state.txn_id.set(None);
        self.0.state.settings.get_mut().rollback();
        self.0.stale = true;
    }

    /// Whether the transaction that is served has changed the schema.
    pub fn changed_schema(&self) -> bool {
        self.0.block.ddl
    }

    /// Runs the one statement of this text in the transaction, once, between its `begin_statement` and `end_statement`. `params` are
    /// given the statement's types as an assignment would; a text is also read as a literal of any type.
    pub fn run(
        &mut self,
        txn: &mut Option<Box<Txn>>,
        sql: &str,
        params: &[Value],
    ) -> Result<Answer, Stop> {
        debug_assert!(self.0.block.txn.is_none());
        std::mem::swap(&mut self.0.block.txn, txn);
        let answer = self.0.embedded(sql, params);
        std::mem::swap(&mut self.0.block.txn, txn);
        answer
    }
}

fn not_here(sql: &str) -> Error {
    let words: Vec<&str> = sql.split_whitespace().take(2).collect();
    Error::unsupported(format!("\"{}\" through the library", words.join(" ")))
        .hint("The library has transactions and their settings of its own.")
}

impl<E: Engine> Session<E> {
    fn embedded(&mut self, sql: &str, params: &[Value]) -> Result<Answer, Stop> {
        if self.stale {
            self.refresh();
        }
        self.look_at_schema();
        let version = self.state.catalog.get_mut().schema.version;
        let planned = |p: &Cached| !self.block.ddl && p.plan.prepared.schema_version == version;
        let found = self.shared.plans.get(sql, &[], &self.env).filter(planned);
        let st = Arc::new(match found {
            Some(found) => self.statement(Some(found.parsed), &[])?,
            // The caller's thread may have a small stack, and syntax trees are walked by recursion.
            None => stacker::grow(STACK, || {
                let parsed = parse_one(sql)?;
                if let Some(Stmt::Utility(_)) = parsed.as_ref().map(|p| &p.stmt) {
                    return Err(not_here(sql));
                }
                self.statement(parsed, &[])
            })?,
        });
        if params.len() != st.params.len() {
            let what = format!(
                "{} values were given, but the statement has {} parameters",
                params.len(),
                st.params.len()
            );
            return Err(Error::new(SqlState::PROTOCOL_VIOLATION, what).into());
        }
        match &st.body {
            Body::Empty | Body::Utility(_) => Ok(Answer::default()),
            Body::Ddl(d) => {
                planner_api::execute_ddl(self, d)?;
                self.block.ddl = true;
                Ok(Answer::default())
            }
            Body::Rows(_) => {
                let values = params.iter().zip(&st.params);
                let values = values
                    .map(|(v, to)| self.argument(v, *to))
                    .collect::<Result<_>>()?;
                let plan = self.plan(&st)?;
                let columns = plan.columns.clone();
                let mut run = Run::new(st.clone(), plan, values, Formats::Text);
                let mut rows = Vec::new();
                self.rows(&mut Nobody, &mut run, 0, false, &mut Sink::Keep(&mut rows))
                    .now_or_never()
                    .expect("rows that are kept wait for nobody")
                    .map_err(Unfinished::here)?;
                Ok(Answer {
                    affected: run.affected(),
                    columns,
                    rows,
                })
            }
        }
    }

    fn argument(&self, v: &Value, to: ColumnType) -> Result<Value> {
        let from = match v {
            Value::Null => return Ok(Value::Null),
            Value::Text(s) => return text::input(s, to, &self.output),
            Value::Json(_) if to.ty == Type::Json => Type::Json,
            Value::Array(a) if to.ty.element() == Some(a.element) => to.ty,
            Value::Array(_) => {
                let what = format!(
                    "an array was given for a parameter of type {}",
                    to.ty.typname()
                );
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, what));
            }
            v => v.natural_type().expect("not NULL"),
        };
        planner_api::assign(v.clone(), from.into(), to, &self.output)
    }
}

/// Rows are kept, notices are nobody's.
struct Nobody;

impl Client for Nobody {
    fn row_description(&mut self, _: &[Column], _: &[Format]) {}
    fn row<R>(&mut self, _: usize, fill: impl FnOnce(&mut Vec<u8>) -> Result<R>) -> Result<R> {
        fill(&mut Vec::new())
    }
    fn command_complete(&mut self, _: &str) {}
    fn portal_suspended(&mut self) {}
    fn empty_query(&mut self) {}
    fn notice(&mut self, _: Severity, _: &Error) {}
    fn parameter_status(&mut self, _: &str, _: &str) {}
    fn copy_in_response(&mut self, _: usize, _: Format) {}
    fn copy_out_response(&mut self, _: usize, _: Format) {}
    fn copy_data(&mut self, _: &[u8]) {}
    fn copy_done(&mut self) {}
    fn copy_in_failed(&mut self) {}
    fn mark(&self) -> u64 {
        0
    }
    fn rewind(&mut self, _: u64) -> bool {
        true
    }
    fn pending(&self) -> usize {
        0
    }
    async fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    async fn copy_input(&mut self) -> Result<CopyInput> {
        Err(Error::unsupported("COPY through the library"))
    }
    async fn pause(&mut self, _: std::time::Duration) {}
}
