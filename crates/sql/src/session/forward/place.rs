//! Where a statement runs: at a replica, or at its primary.
//!
//! What writes, locks rows, changes the schema, loads data or moves a sequence runs at the primary. What a statement does, [`Class`] says,
//! before any statement of the text runs. What is found out only when it runs ends so, too. A site (`site`) runs what changes rows itself.

use super::super::block::Kind;
use super::super::class::{Class, Runs};
use super::super::exit::Exit;
use super::super::parse::{Parsed, Stmt, parse};
use super::super::plans::Plan;
use super::super::prepared::{Body, Statement};
use super::super::utility::Utility;
use super::super::{Session, planner_api, run};
use super::to_primary;
use crate::engine::Engine;
use base::Result;
use sqlparser::ast;

/// Whether the statement calls a function about advisory locks, which goes to the primary from every transaction.
fn locks(p: &Parsed) -> bool {
    match &p.stmt {
        Stmt::Sql(s) => Class::of(s, &p.text).functions.lock,
        Stmt::Extra(_) => false,
        Stmt::Utility(u) => utility_locks(u),
    }
}

fn utility_locks(u: &Utility) -> bool {
    match u {
        Utility::Declare { query, .. } => locks(query),
        Utility::Prepare { stmt, .. } => locks(stmt),
        Utility::Copy(c) => c.query().is_some_and(locks),
        _ => false,
    }
}

/// Whether the text has one of these words.
fn mentions(text: &str, words: &[&str]) -> bool {
    let text = text.as_bytes();
    words.iter().any(|w| {
        text.windows(w.len())
            .any(|piece| piece.eq_ignore_ascii_case(w.as_bytes()))
    })
}

/// Where the statement may run, asked once per plan.
fn away(plan: &Plan, s: &ast::Statement, text: &str) -> Runs {
    *plan.away.get_or_init(|| Class::of(s, text).runs())
}

fn listens(s: &Stmt) -> bool {
    match s {
        Stmt::Utility(u) => matches!(
            &**u,
            Utility::Listen(_) | Utility::Unlisten(_) | Utility::SetConstraints { .. }
        ),
        _ => false,
    }
}

impl Statement {
    /// As [`locks`] says.
    fn locks(&self) -> bool {
        match &self.body {
            Body::Empty | Body::Ddl(_) => false,
            Body::Rows(s) => Class::of(s, &self.text).functions.lock,
            Body::Utility(u) => utility_locks(u),
        }
    }

    /// Where it may run.
    fn runs(&self) -> Runs {
        let primary = |is: bool| if is { Runs::Primary } else { Runs::Anywhere };
        match &self.body {
            Body::Empty => Runs::Anywhere,
            Body::Rows(s) => match self.first_plan() {
                Some(p) => away(p, s, &self.text),
                None => Class::of(s, &self.text).runs(),
            },
            Body::Ddl(_) => Runs::Primary,
            Body::Utility(u) => match &**u {
                Utility::Copy(c) => primary(c.writes()),
                Utility::Notify { .. } => Runs::Primary,
                _ => Runs::Anywhere,
            },
        }
    }
}

impl<E: Engine> Session<E> {
    /// Whether this transaction was declared READ ONLY: then what writes is refused as everywhere. Settings count when it begins.
    pub(in super::super) fn declared_read_only(&mut self) -> bool {
        if let (Some(t), true) = (&self.block.txn, self.block.kind != Kind::None) {
            return t.is_read_only();
        }
        let default = self.state.settings.get_mut().hot.read_only;
        self.block.declared_read_only().unwrap_or(default)
    }

    /// Whether a session that is tied to the primary runs it there: all but what is only about the session here.
    fn goes_tied(&self, s: &Stmt) -> bool {
        match s {
            Stmt::Sql(_) | Stmt::Extra(_) => true,
            Stmt::Utility(u) => self.utility_goes_tied(u),
        }
    }

    fn utility_goes_tied(&self, u: &Utility) -> bool {
        match u {
            // A cursor is where it was declared.
            Utility::Fetch { name, .. } | Utility::Close(Some(name)) => {
                !self.portals.contains_key(name.as_str())
            }
            Utility::Close(None) => self.portals.is_empty(),
            Utility::Prepare { .. } => self.forward.rooted,
            _ => matches!(
                u,
                Utility::Declare { .. }
                    | Utility::ExplainExecute { .. }
                    | Utility::Execute { .. }
                    | Utility::Copy(_)
                    | Utility::Discard(_)
                    | Utility::Notify { .. }
            ),
        }
    }

    /// `block`: the statement is one of several.
    fn goes_away(&mut self, p: &Parsed, block: bool) -> bool {
        match &p.stmt {
            Stmt::Extra(_) => true,
            Stmt::Sql(s) => {
                !planner_api::has_plan(s) || !self.may_run(Class::of(s, &p.text).runs(), block)
            }
            Stmt::Utility(u) => match &**u {
                Utility::Copy(c) => c.writes(),
                Utility::Declare { query, .. } => self.goes_away(query, block),
                Utility::Execute { name, .. } => {
                    let found = self.find_statement(name).cloned();
                    found.is_ok_and(|s| !self.may_run(s.runs(), block))
                }
                Utility::ExplainExecute { options, name, .. } => {
                    let runs = options.to_ascii_lowercase().contains("analy");
                    let found = self.find_statement(name).cloned();
                    runs && found.is_ok_and(|s| s.runs() != Runs::Anywhere)
                }
                Utility::Notify { .. } => true,
                // With a transaction that may go there, whose end it waits for.
                Utility::Listen(_) | Utility::Unlisten(_) | Utility::SetConstraints { .. } => {
                    self.block.kind != Kind::None
                }
                _ => false,
            },
        }
    }

    /// Before the statements of a text run: [`Exit::Forward`], when one of them may not run here. A block that was declared READ ONLY stays,
    /// and so does one that has failed.
    pub(in super::super) fn check_place(&mut self, statements: &[Parsed]) -> Result<(), Exit> {
        if !self.forwards() || self.block.kind == Kind::Failed {
            return Ok(());
        }
        if self.begins_here(statements) {
            // What follows is looked at when it has begun, at its level.
            return Ok(());
        }
        let goes = match (self.forward.pinned, self.declared_read_only()) {
            (true, _) => statements.iter().any(|p| self.goes_tied(&p.stmt)),
            (false, true) => statements.iter().any(locks),
            (false, false) => {
                let block = statements.len() > 1;
                let goes = statements.iter().any(|p| self.goes_away(p, block));
                goes || statements.len() > 1 && statements.iter().any(|p| listens(&p.stmt))
            }
        };
        match goes {
            true => Err(to_primary()),
            false => Ok(()),
        }
    }

    /// The same for a text whose one statement has a plan.
    pub(in super::super) fn check_planned(&mut self, plan: &Plan, p: &Parsed) -> Result<(), Exit> {
        let Stmt::Sql(s) = &p.stmt else {
            return Ok(());
        };
        let runs = away(plan, s, &p.text);
        if !self.forwards() || !self.forward.pinned && self.may_run(runs, false) {
            return Ok(());
        }
        self.check_place(std::slice::from_ref(p))
    }

    /// The same for a run.
    pub(in super::super) fn check_run(&mut self, run: &run::Run) -> Result<(), Exit> {
        if !self.forwards() {
            return Ok(());
        }
        let goes = self.forward.pinned
            || !self.may_run(run.statement.runs(), false)
                && (!self.declared_read_only() || run.statement.locks());
        match goes {
            true => Err(to_primary()),
            false => Ok(()),
        }
    }

    /// Whether a portal of this prepared statement is to be made at the primary.
    pub fn belongs_to_primary(&mut self, name: &str) -> bool {
        if !self.forwards() || self.block.kind == Kind::Failed {
            return false;
        }
        let read_only = self.declared_read_only();
        if self.forward.rooted {
            let text = self.text_of(name);
            return self.names_are_there(&text);
        }
        let Ok(st) = self.find_statement(name).cloned() else {
            return false;
        };
        if self.forward.pinned {
            return match &st.body {
                Body::Empty => false,
                Body::Rows(_) | Body::Ddl(_) => true,
                Body::Utility(u) => self.utility_goes_tied(u),
            };
        }
        if read_only {
            return st.locks();
        }
        match &st.body {
            Body::Utility(u) => match &**u {
                Utility::Declare { query, .. } => self.goes_away(query, false),
                Utility::Execute { name, .. } => {
                    let found = self.find_statement(name).cloned();
                    found.is_ok_and(|s| !self.may_run(s.runs(), false))
                }
                Utility::Listen(_) | Utility::Unlisten(_) | Utility::SetConstraints { .. } => {
                    self.block.kind != Kind::None
                }
                _ => !self.may_run(st.runs(), false),
            },
            _ => !self.may_run(st.runs(), false),
        }
    }

    /// Whether the columns of this prepared statement are known at the primary alone: those of a FETCH from a cursor there.
    pub fn describes_there(&mut self, name: &str) -> bool {
        if !self.forwards() || !self.forward.pinned || self.block.kind == Kind::Failed {
            return false;
        }
        let Ok(st) = self.find_statement(name).cloned() else {
            return false;
        };
        match &st.body {
            Body::Utility(u) => match &**u {
                Utility::Fetch { name, .. } => !self.portals.contains_key(name.as_str()),
                _ => false,
            },
            _ => false,
        }
    }

    /// Before a text is sent to the primary, where it may commit: what its LISTEN is to hear is kept from here on.
    pub fn may_listen(&mut self, text: &str) {
        if mentions(text, &["listen"]) {
            self.state.hear_early();
        }
    }

    /// Whether there is a portal or cursor of this name here.
    pub fn has_portal(&self, name: &str) -> bool {
        if name.is_empty() {
            self.unnamed_portal.is_some()
        } else {
            self.portals.contains_key(name)
        }
    }

    /// Whether the text is one statement about a cursor that was opened here before the transaction moved, or would make another one of its
    /// name.
    pub fn is_about_local_cursor(&self, sql: &str) -> bool {
        if self.portals.is_empty() || !mentions(sql, &["fetch", "move", "close", "declare"]) {
            return false;
        }
        let Ok(all) = parse(sql) else { return false };
        let [
            Parsed {
                stmt: Stmt::Utility(u),
                ..
            },
        ] = &all[..]
        else {
            return false;
        };
        match &**u {
            Utility::Fetch { name, .. }
            | Utility::Close(Some(name))
            | Utility::Declare { name, .. } => self.portals.contains_key(name.as_str()),
            _ => false,
        }
    }
}
