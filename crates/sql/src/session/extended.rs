//! The extended protocol: parse, bind, describe, execute, close, sync.
//!
//! A statement that is followed by Sync at once, with nothing before it, is a transaction of its own ([`Next::Sync`]): it may be
//! run again by the server, and a SELECT reads at *published*. Anything else up to Sync is one implicit transaction.

use super::Session;
use super::client::{Client, Column, Format};
use super::exit::Exit;
use super::parse::parse_one;
use super::prepared::{Body, Statement};
use super::row::Formats;
use super::run::{Run, Work};
use super::utility::Utility;
use crate::engine::Engine;
use crate::types::{binary, text};
use base::{ColumnType, Error, Oid, Result, SqlState, Value};
use std::sync::Arc;

/// What follows an Execute message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Sync,
    More,
}

/// A statement bound to values, or a cursor.
pub struct Portal {
    pub kind: PortalKind,
    /// Savepoints made in the block before it.
    pub depth: u32,
    /// Whether the transaction counts it as resting at its snapshot.
    pub counted: bool,
    /// Rows given so far, for cursors that move.
    pub cursor: super::cursor::Cursor,
    pub started: bool,
}

// One lives per bind: a box would be an allocation per execution.
#[expect(clippy::large_enum_variant)]
pub enum PortalKind {
    Run(Run),
    /// A statement without a plan, the formats of what it may show, and its values.
    Other(Arc<Statement>, Formats, Vec<Value>),
}

impl Portal {
    pub fn new(kind: PortalKind, depth: u32) -> Portal {
        Portal {
            kind,
            depth,
            counted: false,
            cursor: super::cursor::Cursor::default(),
            started: false,
        }
    }
}

impl<E: Engine> Session<E> {
    /// Parse.
    pub async fn parse(&mut self, name: &str, sql: &str, types: &[Oid]) -> Result<(), Exit> {
        self.begin_message();
        // A cancel that came too late for the statement before is not for this one, which may have to be planned.
        self.begin_limit();
        // A text that somebody has planned for this schema need not be read again.
        let parsed = match self.shared.plans.get(sql, types, &self.env) {
            Some(c) => Some(c.parsed),
            None => parse_one(sql)?,
        };
        if self.block.kind == super::block::Kind::Failed
            && !ends_block(parsed.as_ref().map(|p| &p.stmt))
        {
            self.not_failed()?;
        }
        if name.is_empty() {
            self.forget("");
        }
        if self.follows() {
            self.begin_clock();
        }
        let st = self.newest_statement(parsed, types).await?;
        Ok(self.keep(name, st, false)?)
    }

    /// Bind. `params` gives each value's bytes in turn.
    pub fn bind<'a>(
        &mut self,
        portal: &str,
        statement: &str,
        param_formats: &[Format],
        params: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
        result_formats: &[Format],
    ) -> Result<()> {
        self.begin_message();
        let st = self.find_statement(statement)?.clone();
        if params.len() != st.params.len() {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                    params.len(),
                    st.params.len()
                ),
            ));
        }
        if self.block.kind == super::block::Kind::Failed && !st.ends_block() {
            self.not_failed()?;
        }
        let depth = self.block.depth;
        self.begin_limit();
        let kind = match &st.body {
            Body::Rows(_) => {
                let plan = self.plan_again(&st)?;
                let values = self.parameters(portal, &st, param_formats, params)?;
                let formats = Self::result_formats(result_formats, plan.columns.len())?;
                PortalKind::Run(Run::new(st, plan, values, formats))
            }
            _ => {
                let columns = self.columns_of(&st)?.map_or(0, |c| c.len());
                let formats = Self::result_formats(result_formats, columns)?;
                let values = self.parameters(portal, &st, param_formats, params)?;
                PortalKind::Other(st, formats, values)
            }
        };
        let p = Portal::new(kind, depth);
        if portal.is_empty() {
            self.close_portal("");
            self.unnamed_portal = Some(p);
            return Ok(());
        }
        if self.portals.contains_key(portal) {
            return Err(Error::new(
                SqlState::DUPLICATE_CURSOR,
                format!("cursor \"{portal}\" already exists"),
            ));
        }
        // A named portal lives to the end of its transaction.
        self.begin_implicit();
        self.portals.insert(portal.into(), p);
        Ok(())
    }

    /// Whether this portal takes its snapshot after Bind: see [`Session::stand_portal`].
    #[inline]
    pub fn portal_stands(&self, name: &str) -> bool {
        !name.is_empty() && self.follows()
    }

    /// After Bind: at a node that follows, a named portal takes its snapshot there, as a cursor does. Its transaction may go on at the
    /// primary before the portal is run, which stays here and must be inside of that transaction still.
    pub async fn stand_portal(&mut self, name: &str) -> Result<()> {
        if !self.portal_stands(name) {
            return Ok(());
        }
        let Some(mut p) = self.portals.remove(name) else {
            return Ok(());
        };
        if let PortalKind::Run(run) = &mut p.kind {
            self.begin_clock();
            self.stand(run).await?;
            self.rest_now(&mut p, true);
        }
        self.portals.insert(name.into(), p);
        Ok(())
    }

    async fn stand(&mut self, run: &mut Run) -> Result<()> {
        self.ensure_txn(false);
        let placed = self.place_for(&run.plan.prepared, run.params()).await;
        placed.map_err(Exit::here)?;
        let txn = self.block.txn.as_mut().expect("begun");
        txn.begin_statement()?;
        self.placed();
        run.plan = self.plan_again(&run.statement)?;
        let txn = self.block.txn.as_mut().expect("begun");
        run.park(txn);
        Ok(())
    }

    /// The values of Bind.
    fn parameters<'a>(
        &mut self,
        portal: &str,
        st: &Statement,
        formats: &[Format],
        params: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    ) -> Result<Vec<Value>> {
        let mut values = Vec::with_capacity(params.len());
        for (i, p) in params.enumerate() {
            let format = match formats {
                [] => Format::Text,
                [one] => *one,
                many => many[i],
            };
            let v = self.parameter(p, self.type_of_now(st.params[i]), format);
            values.push(v.map_err(|e| parameter_error(e, portal, i))?);
        }
        Ok(values)
    }

    fn parameter(&mut self, p: Option<&[u8]>, ty: ColumnType, format: Format) -> Result<Value> {
        let Some(bytes) = p else {
            return Ok(Value::Null);
        };
        match format {
            Format::Binary => binary::decode(bytes, ty.ty),
            Format::Text => text::input(base::text(bytes)?, ty, &self.output),
        }
    }

    /// Describe of a statement: parameter types, and the columns if it gives rows.
    pub fn describe_statement(&mut self, name: &str) -> Result<(Vec<Oid>, Option<Vec<Column>>)> {
        let st = self.find_statement(name)?.clone();
        let types = st.params.iter().map(|t| t.ty.oid()).collect();
        if self.block.kind == super::block::Kind::Failed && !st.ends_block() {
            self.not_failed()?;
        }
        Ok((types, self.columns_of(&st)?))
    }

    /// Describe of a portal: `tell` gets the columns and their formats, if it gives rows.
    pub fn describe_portal(
        &mut self,
        name: &str,
        tell: impl FnOnce(Option<(&[Column], &Formats)>),
    ) -> Result<()> {
        let p = self.portal(name)?;
        match &p.kind {
            PortalKind::Run(r) => {
                let columns = &r.plan.columns[..];
                tell(r.plan.gives_rows().then_some((columns, &r.formats)));
            }
            PortalKind::Other(st, f, _) => {
                let (st, f) = (st.clone(), f.clone());
                let columns = self.columns_of(&st)?;
                tell(columns.as_ref().map(|c| (&c[..], &f)));
            }
        }
        Ok(())
    }

    fn portal(&self, name: &str) -> Result<&Portal> {
        let p = if name.is_empty() {
            self.unnamed_portal.as_ref()
        } else {
            self.portals.get(name)
        };
        match p {
            Some(p) => Ok(p),
            None => Err(self.no_portal(name)),
        }
    }

    /// 34000. An error of the block has ended its portals, which PostgreSQL keeps for as long as the block: then 25P02.
    fn no_portal(&self, name: &str) -> Error {
        let gone = |()| {
            Error::new(
                SqlState::INVALID_CURSOR_NAME,
                format!("portal \"{name}\" does not exist"),
            )
        };
        self.not_failed().map_or_else(|failed| failed, gone)
    }

    /// Execute.
    pub async fn execute<C: Client>(
        &mut self,
        c: &mut C,
        name: &str,
        max_rows: i32,
        next: Next,
    ) -> Result<(), Exit> {
        let max_rows = usize::try_from(max_rows).unwrap_or(0);
        let p = match name.is_empty() {
            true => self.unnamed_portal.take(),
            false => self.portals.remove(name),
        };
        let Some(mut p) = p else {
            return Err(self.no_portal(name).into());
        };
        if next == Next::More || max_rows > 0 {
            self.begin_implicit();
        }
        let r = self.execute_portal(c, &mut p, max_rows).await;
        // The portal is kept, to be asked for more or to answer that it has none; when its transaction is over, it is not.
        if r.is_ok() && self.block.kind != super::block::Kind::None {
            let resting = matches!(&p.kind, PortalKind::Run(r) if r.resting());
            self.rest_now(&mut p, resting);
            if name.is_empty() {
                self.unnamed_portal = Some(p);
            } else {
                self.portals.insert(name.into(), p);
            }
        } else {
            self.rest_now(&mut p, false);
        }
        self.report(c);
        r
    }

    pub(super) fn rest_now(&mut self, p: &mut Portal, resting: bool) {
        self.rest(p, resting);
        p.counted = resting && self.block.txn.is_some();
    }

    async fn execute_portal<C: Client>(
        &mut self,
        c: &mut C,
        p: &mut Portal,
        max_rows: usize,
    ) -> Result<(), Exit> {
        let again = std::mem::replace(&mut p.started, true);
        match &mut p.kind {
            PortalKind::Run(run) => {
                if run.finished {
                    let tag = run.tag(0);
                    c.command_complete(&tag);
                    return Ok(());
                }
                self.begin_activity(&run.statement.text);
                if self.finish_run(c, run, max_rows, false).await? {
                    c.portal_suspended();
                }
                Ok(())
            }
            PortalKind::Other(st, formats, values) => {
                if again {
                    return Err(Error::new(
                        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                        "portal cannot be run again",
                    )
                    .into());
                }
                let (st, formats) = (st.clone(), formats.clone());
                let given = std::mem::take(values);
                self.begin_activity(&st.text);
                match &st.body {
                    Body::Empty => c.empty_query(),
                    Body::Utility(u) => {
                        let mut u = u.clone();
                        if !given.is_empty()
                            && let Utility::Declare { values, .. } = Arc::make_mut(&mut u)
                        {
                            *values = given.into_iter().zip(st.params.iter().copied()).collect();
                        }
                        let tag = self.utility(c, &u, &formats, false).await?;
                        if let Some(tag) = tag {
                            c.command_complete(&tag);
                        }
                    }
                    Body::Ddl(s) => {
                        let ended = self.execute_work(c, Work::Ddl(s)).await?;
                        c.command_complete(&ended.tag);
                    }
                    Body::Rows(_) => unreachable!("it has a plan"),
                }
                Ok(())
            }
        }
    }

    /// Close. Closing what is not there is no error.
    pub fn close(&mut self, portal: bool, name: &str) {
        if portal {
            self.close_portal(name);
        } else {
            self.forget(name);
        }
    }

    /// Whether Sync ends an implicit transaction, which may wait.
    #[inline]
    pub fn sync_commits(&self) -> bool {
        self.block.kind == super::block::Kind::Implicit
    }

    /// Sync: ends an implicit transaction.
    pub async fn sync<C: Client>(&mut self, c: &mut C) -> Result<()> {
        if !self.sync_commits() {
            return Ok(());
        }
        if let Err(e) = self.hold_cursors(c).await {
            self.rollback().await?;
            return Err(e.here());
        }
        let r = self.commit().await;
        self.stale = true;
        self.report(c);
        r
    }

    /// A message failed with this error: the block fails, and the reply may leave when this returns. An error is to be told instead: what
    /// failed may tell of what may never be published, or of rows that the role may not read.
    pub async fn failed<C: Client>(&mut self, c: &mut C, e: &Error) -> Result<()> {
        self.count(e);
        let hidden = self.without_rows(e);
        let waited = self.fail(e).await;
        self.report(c);
        waited?;
        hidden.map_or(Ok(()), Err)
    }
}

impl Statement {
    /// Whether it may run in a failed block.
    pub fn ends_block(&self) -> bool {
        match &self.body {
            Body::Utility(u) => ends(u),
            _ => false,
        }
    }
}

fn ends(u: &Utility) -> bool {
    matches!(
        u,
        Utility::Commit { .. } | Utility::Rollback { .. } | Utility::RollbackTo(_)
    )
}

pub(super) fn ends_block(s: Option<&super::parse::Stmt>) -> bool {
    match s {
        Some(super::parse::Stmt::Utility(u)) => ends(u),
        None => true,
        _ => false,
    }
}

fn parameter_error(e: Error, portal: &str, i: usize) -> Error {
    let n = i + 1;
    e.context(match portal {
        "" => format!("unnamed portal parameter ${n}"),
        p => format!("portal \"{p}\" parameter ${n}"),
    })
}
