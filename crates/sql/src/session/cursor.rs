//! Cursors of SQL: DECLARE, FETCH, MOVE, CLOSE.
//!
//! A cursor is a portal by another name: both sorts share one name space, and both end with their transaction. One that was not
//! declared SCROLL only goes forward, and its rows are made as they are fetched. A SCROLL cursor makes all its rows when it is
//! first used and keeps them, because operators run one way.
//!
//! WITH HOLD: the commit of the transaction makes the rows that are left, in the session's memory, and the cursor reads those from then on.
//! Outside of a block DECLARE begins an implicit transaction, which ends with its message. A rollback ends the cursors that the transaction
//! declared and no others. A cursor that was declared in a transaction that had moved to the primary stays there, and the session is tied to
//! its connection until the cursor is closed (`forward`).
//!
//! Left out on purpose: WHERE CURRENT OF.

use super::Session;
use super::block::Kind;
use super::client::{Client, Column, Format};
use super::exit::Exit;
use super::extended::{Portal, PortalKind};
use super::prepared::{Body, without_parameters};
use super::row::{Formats, put_value};
use super::run::{Run, Sink, Work};
use super::utility::{Direction, Utility};
use super::variables::{all, fitting};
use crate::catalog::CursorRow;
use crate::engine::Engine;
use crate::plan::Prepared;
use base::{Error, Result, SqlState, Value};
use std::sync::Arc;
use txn::Stop;

/// Whether a cursor outlives its transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hold {
    #[default]
    No,
    /// WITH HOLD, and its transaction runs.
    Declared,
    /// Its rows are kept, and its transaction is about to commit.
    Kept,
    /// Its transaction has committed, and its rows are kept.
    Held,
}

/// Where a cursor stands.
#[derive(Default)]
pub struct Cursor {
    scroll: bool,
    binary: bool,
    hold: Hold,
    /// The rows that are kept: all of a SCROLL cursor that was used, those that were left of another at its commit.
    rows: Option<Vec<Vec<Value>>>,
    /// How many rows were given before the first that is kept.
    gone: i64,
    /// It has outlived its transaction, and a FETCH of it failed: it can only be closed.
    failed: bool,
    /// The row that was fetched last, from 1; 0: before the first.
    at: i64,
}

impl Cursor {
    /// Its rows are kept, so that a commit leaves it.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.hold, Hold::Kept | Hold::Held)
    }

    /// It has outlived its transaction.
    pub(super) fn is_held(&self) -> bool {
        self.hold == Hold::Held
    }

    /// It was declared WITH HOLD.
    pub(super) fn is_holdable(&self) -> bool {
        self.hold != Hold::No
    }
}

fn cannot_run(name: &str) -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("portal \"{name}\" cannot be run"),
    )
}

fn unknown(name: &str) -> Error {
    Error::new(
        SqlState::INVALID_CURSOR_NAME,
        format!("cursor \"{name}\" does not exist"),
    )
}

impl<E: Engine> Session<E> {
    pub(super) async fn declare(&mut self, u: &Utility) -> Result<(), Exit> {
        let Utility::Declare {
            name,
            binary,
            scroll,
            hold,
            query,
            values,
        } = u
        else {
            unreachable!("called for DECLARE");
        };
        if *hold {
            self.begin_implicit();
        }
        if self.block.kind == Kind::None {
            return Err(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            )
            .into());
        }
        if self.portals.contains_key(name.as_str()) {
            return Err(Error::new(
                SqlState::DUPLICATE_CURSOR,
                format!("cursor \"{name}\" already exists"),
            )
            .into());
        }
        // The snapshot must not move from here on, whether or not a row was fetched.
        self.settle().await?;
        self.ensure_txn(false);
        if self.follows() {
            let placed = self.place().await;
            placed.map_err(|e| self.or_elsewhere(e))?;
        }
        let (st, plan, values) = loop {
            let txn = self.block.txn.as_mut().expect("begun");
            txn.begin_statement()?;
            self.placed();
            // It has the columns that its tables have there.
            let types: Vec<_> = values.iter().map(|(_, t)| t.ty.oid()).collect();
            let st = self.statement(Some(query.clone()), &types);
            let st = Arc::new(match values.is_empty() {
                true => without_parameters(st)?,
                false => st?,
            });
            let values = values.iter().map(|(v, _)| v.clone()).collect();
            let Body::Rows(_) = st.body else {
                return Err(Error::internal("a cursor without rows").into());
            };
            let plan = self.plan(&st)?;
            self.check_cursor(&plan.prepared, *scroll == Some(true), *hold)?;
            // It uses its tables from now on. Who kept it off may have changed them.
            match self.use_tables(&plan.prepared) {
                Ok(()) => break (st, plan, values),
                Err(Stop::Error(e)) => return Err(e.into()),
                Err(Stop::Restart) => self.block.txn.as_mut().expect("begun").rollback_statement(),
                Err(Stop::Blocked) => {
                    self.block.txn.as_mut().expect("begun").rollback_statement();
                    self.wait_for_lock().await?;
                }
            }
        };
        self.note_used(&plan.prepared);
        let mut run = Run::new(st.clone(), plan, values, Formats::Text).allowed();
        let txn = self.block.txn.as_mut().expect("begun");
        run.park(txn);
        let mut portal = Portal::new(PortalKind::Run(run), self.block.depth);
        portal.cursor.scroll = *scroll == Some(true);
        portal.cursor.binary = *binary;
        if *hold {
            portal.cursor.hold = Hold::Declared;
        }
        self.state.cursors.get_mut().push(CursorRow {
            name: name.clone(),
            statement: self.handle.activity.lock().query.to_string(),
            is_holdable: *hold,
            is_binary: *binary,
            is_scrollable: portal.cursor.scroll,
            creation_time: self.state.statement_start.get(),
        });
        self.rest_now(&mut portal, true);
        self.portals.insert(name.as_str().into(), portal);
        Ok(())
    }

    /// What a cursor cannot be, and whether the role may read what it reads.
    fn check_cursor(&mut self, p: &Prepared, scroll: bool, hold: bool) -> Result<()> {
        if p.writes_in_with() {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "DECLARE CURSOR must not contain data-modifying statements in WITH",
            ));
        }
        if scroll && p.locks_rows {
            return Err(Error::unsupported("DECLARE SCROLL CURSOR … FOR UPDATE")
                .detail("Scrollable cursors must be READ ONLY."));
        }
        if hold && p.locks_rows {
            let what = "DECLARE CURSOR WITH HOLD ... FOR UPDATE";
            return Err(Error::unsupported(what).detail("Holdable cursors must be READ ONLY."));
        }
        // As PostgreSQL, which asks when a cursor is opened: FETCH goes on after a REVOKE.
        let role = self.state.current_role.get();
        let schema = self.block.txn.as_ref().expect("begun").catalog();
        super::planner_api::check_privileges(&schema.schema, role, p)
    }

    /// Before a commit: cursors WITH HOLD make the rows that they have not given yet. After an error the transaction must be rolled back.
    pub(super) async fn hold_cursors<C: Client>(&mut self, c: &mut C) -> Result<(), Exit> {
        let declared = |p: &Portal| p.cursor.hold == Hold::Declared;
        let names = self.portals.iter().filter(|(_, p)| declared(p));
        let names: Vec<Box<str>> = names.map(|(n, _)| n.clone()).collect();
        for name in names {
            let mut p = self.portals.remove(&name).expect("just seen");
            let kept = self.keep_rows(c, &mut p).await;
            self.rest_now(&mut p, false);
            kept?;
            self.portals.insert(name, p);
        }
        Ok(())
    }

    async fn keep_rows<C: Client>(&mut self, c: &mut C, p: &mut Portal) -> Result<(), Exit> {
        let PortalKind::Run(run) = &mut p.kind else {
            return Err(Error::internal("a cursor without a plan").into());
        };
        let cursor = &mut p.cursor;
        if cursor.rows.is_none() {
            // One that came to its end stands behind its last row.
            cursor.gone = cursor.at - i64::from(run.finished);
            let mut rows = Vec::new();
            if !run.finished {
                let work = Work::Rows {
                    run,
                    max_rows: 0,
                    describe: false,
                    sink: Sink::Keep(&mut rows),
                };
                self.execute_work(c, work).await?;
            }
            cursor.rows = Some(rows);
        }
        run.end();
        cursor.hold = Hold::Kept;
        // No savepoint of a later transaction is older.
        p.depth = 0;
        Ok(())
    }

    /// The transaction has committed: the cursors that it kept outlive it.
    pub(super) fn held_cursors(&mut self) {
        for p in self.portals.values_mut() {
            if p.cursor.hold == Hold::Kept {
                p.cursor.hold = Hold::Held;
            }
        }
    }

    /// Whether a cursor is open that its transaction ends with, or another portal.
    pub(super) fn has_own_portals(&self) -> bool {
        self.portals.values().any(|p| !p.cursor.is_held())
    }

    /// Whether a cursor WITH HOLD is open.
    pub(super) fn has_holdable(&self) -> bool {
        self.portals.values().any(|p| p.cursor.is_holdable())
    }

    pub(super) fn close_cursors(&mut self, name: Option<&str>) -> Result<()> {
        let Some(name) = name else {
            let names: Vec<_> = self.portals.keys().cloned().collect();
            for n in names {
                self.close_portal(&n);
            }
            return Ok(());
        };
        if self.close_portal(name) {
            Ok(())
        } else {
            Err(unknown(name))
        }
    }

    pub(super) fn cursor_columns(&self, name: &str) -> Result<Vec<Column>> {
        match self.portals.get(name).map(|p| &p.kind) {
            Some(PortalKind::Run(r)) => Ok(r.plan.columns.clone()),
            _ => Err(unknown(name)),
        }
    }

    /// FETCH and MOVE; the tag.
    pub(super) async fn fetch<C: Client>(
        &mut self,
        c: &mut C,
        name: &str,
        direction: Direction,
        moving: bool,
        formats: &Formats,
        describe: bool,
    ) -> Result<String, Exit> {
        let mut p = self.portals.remove(name).ok_or_else(|| unknown(name))?;
        let bound = match &p.kind {
            PortalKind::Run(run) => Some(run.formats.clone()),
            _ => None,
        };
        let r = match p.cursor.failed {
            true => Err(cannot_run(name).into()),
            false => {
                let fetched = self.fetch_from(c, &mut p, direction, moving, formats, describe);
                fetched.await
            }
        };
        // This statement's formats; Execute keeps those that the portal was bound with.
        if let (PortalKind::Run(run), Some(bound)) = (&mut p.kind, bound) {
            run.formats = bound;
        }
        // After an error the block is failed, and the portals of its transaction are gone or useless.
        if r.is_ok() || p.cursor.is_held() {
            p.cursor.failed = r.is_err();
            self.portals.insert(name.into(), p);
        } else {
            self.rest_now(&mut p, false);
            self.state.cursors.get_mut().retain(|c| c.name != name);
        }
        // It is here, and nowhere else.
        let n = r.map_err(Exit::never_elsewhere)?;
        Ok(format!("{} {n}", if moving { "MOVE" } else { "FETCH" }))
    }

    async fn fetch_from<C: Client>(
        &mut self,
        c: &mut C,
        p: &mut Portal,
        direction: Direction,
        moving: bool,
        formats: &Formats,
        describe: bool,
    ) -> Result<u64, Exit> {
        let Portal {
            kind: PortalKind::Run(run),
            cursor,
            ..
        } = p
        else {
            return Err(Error::internal("a cursor without a plan").into());
        };
        let columns = run.plan.columns.clone();
        run.formats = if cursor.binary {
            all(Format::Binary)
        } else {
            fitting(formats, columns.len())
        };
        if describe && !moving {
            c.row_description(&columns, &run.formats.list(columns.len()));
        }
        let direction = match cursor.scroll {
            true => direction,
            false => forward_only(direction, cursor.at)?,
        };
        if !cursor.scroll && !cursor.is_held() {
            return self.forward(c, run, cursor, direction, moving).await;
        }
        if cursor.rows.is_none() {
            let mut rows = Vec::new();
            let work = Work::Rows {
                run,
                max_rows: 0,
                describe: false,
                sink: Sink::Keep(&mut rows),
            };
            self.execute_work(c, work).await?;
            cursor.rows = Some(rows);
        }
        let rows = cursor.rows.as_ref().expect("just made");
        let n = cursor.gone + rows.len() as i64;
        let (picked, at) = walk(cursor.at, n, direction);
        cursor.at = at;
        if !moving {
            for &i in &picked {
                c.row(columns.len(), |out| {
                    for (k, v) in rows[(i - cursor.gone) as usize - 1].iter().enumerate() {
                        let f = run.formats.of(k);
                        put_value(v, columns[k].ty.ty, f, &self.output, &mut self.scratch, out);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(picked.len() as u64)
    }

    async fn forward<C: Client>(
        &mut self,
        c: &mut C,
        run: &mut Run,
        cursor: &mut Cursor,
        direction: Direction,
        moving: bool,
    ) -> Result<u64, Exit> {
        let (skip, take) = match direction {
            Direction::Forward(n) => (0, n),
            Direction::Absolute(n) => (n - cursor.at - 1, 1),
            Direction::Relative(n) => (n - 1, 1),
            _ => (0, 0),
        };
        if skip > 0 {
            self.some(c, run, cursor, skip, true).await?;
        }
        self.some(c, run, cursor, take, moving).await
    }

    async fn some<C: Client>(
        &mut self,
        c: &mut C,
        run: &mut Run,
        cursor: &mut Cursor,
        n: i64,
        moving: bool,
    ) -> Result<u64, Exit> {
        if run.finished {
            return Ok(0);
        }
        let work = Work::Rows {
            run,
            max_rows: usize::try_from(n).unwrap_or(0),
            describe: false,
            sink: if moving { Sink::Nowhere } else { Sink::Client },
        };
        let ended = self.execute_work(c, work).await?;
        cursor.at += ended.rows as i64;
        if !ended.suspended {
            cursor.at += 1;
        }
        Ok(ended.rows)
    }
}

/// The movement, if it leads forward from `at`; else 55000.
fn forward_only(d: Direction, at: i64) -> Result<Direction> {
    let forward = match d {
        Direction::Forward(n) => n != 0,
        Direction::ForwardAll => true,
        Direction::Absolute(n) => n > at,
        Direction::Relative(n) => n > 0,
        Direction::Backward(_) | Direction::BackwardAll => false,
    };
    if forward {
        return Ok(d);
    }
    Err(Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "cursor can only scan forward",
    )
    .hint("Declare it with SCROLL option to enable backward scan."))
}

/// The rows (from 1) that a movement over `n` rows from `at` gives, and where it ends (0 before the first, n + 1 after the last).
fn walk(at: i64, n: i64, d: Direction) -> (Vec<i64>, i64) {
    let one = |to: i64| {
        let to = to.clamp(0, n + 1);
        (
            if (1..=n).contains(&to) {
                vec![to]
            } else {
                vec![]
            },
            to,
        )
    };
    match d {
        Direction::Forward(0) => one(at),
        Direction::Forward(k) => {
            let to = at.saturating_add(k).min(n + 1);
            ((at + 1..=to.min(n)).collect(), to)
        }
        Direction::ForwardAll => ((at + 1..=n).collect(), n + 1),
        Direction::Backward(0) => one(at),
        Direction::Backward(k) => {
            let to = at.saturating_sub(k).max(0);
            ((to.max(1)..at).rev().collect(), to)
        }
        Direction::BackwardAll => ((1..at).rev().collect(), 0),
        Direction::Absolute(k) if k < 0 => one(n + 1 + k),
        Direction::Absolute(k) => one(k),
        Direction::Relative(k) => one(at.saturating_add(k)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movements() {
        use Direction as D;
        for (at, d, rows, to) in [
            (0, D::Forward(2), vec![1, 2], 2),
            (2, D::ForwardAll, vec![3], 4),
            (4, D::Forward(1), vec![], 4),
            (4, D::Backward(2), vec![3, 2], 2),
            (2, D::BackwardAll, vec![1], 0),
            (2, D::Forward(0), vec![2], 2),
            (0, D::Absolute(-1), vec![3], 3),
            (3, D::Absolute(9), vec![], 4),
            (3, D::Relative(-1), vec![2], 2),
            (0, D::Backward(1), vec![], 0),
        ] {
            assert_eq!(walk(at, 3, d), (rows, to), "{at} {d:?}");
        }
    }
}
