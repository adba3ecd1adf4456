//! The simple protocol: a text with any number of statements.
//!
//! One statement alone is a transaction of its own. Several are one implicit transaction, unless BEGIN and COMMIT among them
//! say otherwise; the replies of what went before an error still go out, its effects do not stay. One that differs from
//! others in its numbers only shares their plan (`literals`).

use super::Session;
use super::block::Kind;
use super::client::Client;
use super::exit::Exit;
use super::extended::ends_block;
use super::literals;
use super::parse::{Parsed, Stmt, from_statement, parse, parse_one};
use super::prepared::{Body, Statement, without_parameters};
use super::row::Formats;
use super::run::{Run, Sink, Work};
use crate::engine::Engine;
use base::Result;

/// Texts that are remembered to have no plan in their normal form.
const MOST_NOT_NORMAL: usize = 256;

impl<E: Engine> Session<E> {
    /// Runs the statements of a text. After an error call [`Session::failed`].
    pub async fn simple<C: Client>(&mut self, c: &mut C, sql: &str) -> Result<(), Exit> {
        if self.stale {
            self.refresh();
        }
        if self.unnamed.take().is_some() {
            self.forward.version += 1;
        }
        self.close_portal("");
        let statements = match self.shared.plans.get(sql, &[], &self.env) {
            Some(found) => {
                self.check_planned(&found.plan, &found.parsed)?;
                vec![found.parsed]
            }
            None => {
                self.begin_limit();
                if let Some(mut run) = self.in_normal_form(sql) {
                    self.check_run(&run)?;
                    self.begin_activity(&sql.into());
                    self.finish_run(c, &mut run, 0, true).await?;
                    self.report(c);
                    return Ok(());
                }
                let all = parse(sql)?;
                self.check_place(&all)?;
                all
            }
        };
        if statements.is_empty() {
            c.empty_query();
            return Ok(());
        }
        let n = statements.len();
        for (i, parsed) in statements.into_iter().enumerate() {
            if n > 1 {
                self.begin_implicit();
            }
            let mark = c.mark();
            let r = match i {
                0 => Ok(()),
                // What was before may have changed what runs where.
                _ => self.check_place(std::slice::from_ref(&parsed)),
            };
            let r = match r {
                Ok(()) => self.one(c, parsed, i + 1 == n).await,
                e => e,
            };
            if let Err(e) = r {
                if i > 0 && e.is_for_others() && c.rewind(mark) {
                    self.forward.rest = Some(from_statement(sql, i)?);
                }
                return Err(e);
            }
        }
        self.report(c);
        Ok(())
    }

    /// The run of a text whose form without integers has a plan, or gets one.
    fn in_normal_form(&mut self, sql: &str) -> Option<Run> {
        // One that was begun before the text ends with it (`one`).
        if matches!(self.block.kind, Kind::Failed | Kind::Implicit) {
            return None;
        }
        let n = literals::normal(sql)?;
        if self.not_normal.contains(&n.text) {
            return None;
        }
        let parsed = match self.shared.plans.get(&n.text, &n.types, &self.env) {
            Some(found) => Ok(Some(found.parsed)),
            None => parse_one(&n.text),
        };
        let st = parsed.and_then(|p| self.statement(p, &n.types));
        let same = |st: &Statement| {
            let types = st.params.iter().map(|t| t.ty.oid());
            matches!(st.body, Body::Rows(_)) && types.eq(n.types.iter().copied())
        };
        let st = st.ok().filter(same).map(std::sync::Arc::new);
        let planned = match st {
            Some(st) => Some((self.plan(&st).ok()?, st)),
            None => None,
        };
        match planned.filter(|(plan, _)| !plan.prepared.plan.by_numbers) {
            Some((plan, st)) => Some(Run::new(st, plan, n.values, Formats::Text).untold()),
            None => {
                if self.not_normal.len() == MOST_NOT_NORMAL {
                    self.not_normal.clear();
                }
                self.not_normal.insert(n.text);
                None
            }
        }
    }

    async fn one<C: Client>(&mut self, c: &mut C, parsed: Parsed, last: bool) -> Result<(), Exit> {
        if self.block.kind == Kind::Failed && !ends_block(Some(&parsed.stmt)) {
            return Ok(self.not_failed()?);
        }
        self.begin_activity(&parsed.text);
        let tag = match &parsed.stmt {
            Stmt::Utility(u) => {
                let u = u.clone();
                self.utility(c, &u, &Formats::Text, true).await?
            }
            Stmt::Sql(_) | Stmt::Extra(_) => {
                let st = match self.fresh_statement(Some(parsed), &[]).await {
                    Ok(st) => without_parameters(Ok(st))?,
                    Err(Exit::Error(e)) => without_parameters(Err(e))?,
                    Err(away) => return Err(away),
                };
                let st = std::sync::Arc::new(st);
                match &st.body {
                    Body::Ddl(s) => {
                        let ended = self.execute_work(c, Work::Ddl(s)).await?;
                        Some(ended.tag.into_string())
                    }
                    _ => {
                        let plan = self.plan(&st)?;
                        let mut run = Run::new(st, plan, Vec::new(), Formats::Text).untold();
                        let work = Work::Rows {
                            run: &mut run,
                            max_rows: 0,
                            describe: true,
                            sink: Sink::Client,
                        };
                        Some(self.execute_work(c, work).await?.tag.into_string())
                    }
                }
            }
        };
        // The last statement is complete when its transaction is.
        if last && self.block.kind == Kind::Implicit {
            self.hold_cursors(c).await?;
            self.commit().await?;
            self.stale = true;
        }
        if let Some(tag) = tag {
            c.command_complete(&tag);
        }
        Ok(())
    }
}
