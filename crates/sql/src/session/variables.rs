//! The statements of [`Utility`], run: transaction control, SET and SHOW, DISCARD.

use super::Session;
use super::block::Kind;
use super::client::{Client, Column, Format};
use super::exit::Exit;
use super::notify::Listening;
use super::roles::is_of_role;
use super::row::{Formats, put_value};
use super::settings::{self, Span};
use super::utility::{SetValue, Utility};
use crate::engine::Engine;
use base::{Error, Result, SqlState, Type, Value};

impl<E: Engine> Session<E> {
    /// Runs it. The command tag; none when it has been sent.
    pub(super) async fn utility<C: Client>(
        &mut self,
        c: &mut C,
        u: &Utility,
        formats: &Formats,
        describe: bool,
    ) -> Result<Option<String>, Exit> {
        let tag = match u {
            Utility::Begin { modes, start } => {
                self.begin_block(c, *modes)?;
                if *start { "START TRANSACTION" } else { "BEGIN" }
            }
            Utility::Commit { chain } => self.end_block(c, true, *chain).await?,
            Utility::Rollback { chain } => self.end_block(c, false, *chain).await?,
            Utility::RollbackTo(name) => {
                self.rollback_to(name)?;
                "ROLLBACK"
            }
            _ => {
                self.not_failed()?;
                let plans = matches!(
                    u,
                    Utility::Prepare { .. }
                        | Utility::Execute { .. }
                        | Utility::Declare { .. }
                        | Utility::Copy(_)
                );
                let mark = c.mark();
                let e = match self.ordinary(c, u, formats, describe).await {
                    Err(Exit::Error(e)) if plans => e,
                    r => return r,
                };
                // Its plan was made with the schema that is shown here.
                if self.renew_schema(&e).await? && c.rewind(mark) {
                    return self.ordinary(c, u, formats, describe).await;
                }
                return Err(e.into());
            }
        };
        self.stale = true;
        Ok(Some(tag.to_owned()))
    }

    fn checkpoint(&mut self) -> Result<()> {
        let me = self.state.current_role.get();
        let schema = self.state.schema();
        if !schema.has_rights_of(me, base::membership::CHECKPOINT) {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT",
            ));
        }
        self.state
            .blocking(|check_cancelled| self.shared.engine.checkpoint(check_cancelled))?;
        Ok(())
    }

    async fn ordinary<C: Client>(
        &mut self,
        c: &mut C,
        u: &Utility,
        formats: &Formats,
        describe: bool,
    ) -> Result<Option<String>, Exit> {
        let reads = matches!(
            u,
            Utility::Savepoint(_)
                | Utility::Execute { .. }
                | Utility::ExplainExecute { .. }
                | Utility::Declare { .. }
                | Utility::Copy(_)
        );
        if reads && self.block.txn.is_none() {
            self.reach_floor().await?;
        }
        let tag: &str = match u {
            Utility::Savepoint(name) => {
                self.savepoint(name)?;
                "SAVEPOINT"
            }
            Utility::Release(name) => {
                self.release(name)?;
                "RELEASE"
            }
            Utility::SetTransaction(m) => {
                if matches!(self.block.kind, Kind::None) {
                    let e = "SET TRANSACTION can only be used in transaction blocks";
                    self.warn(c, SqlState::NO_ACTIVE_SQL_TRANSACTION, e);
                } else {
                    self.set_modes(*m)?;
                }
                "SET"
            }
            Utility::SetCharacteristics(m) => {
                self.set_characteristics(*m);
                "SET"
            }
            Utility::Set { name, value, local } => {
                if let Some(v) = value
                    && is_of_role(name)
                {
                    self.look_for_role(Some(&joined(name, v))).await?;
                }
                self.set(c, name, value.as_deref(), *local)?;
                "SET"
            }
            Utility::SetRole { role, local, reset } => {
                self.look_for_role(role.as_deref()).await?;
                self.set_role(c, role.as_deref(), *local)?;
                if *reset { "RESET" } else { "SET" }
            }
            Utility::SetAuthorization { user, local, reset } => {
                self.look_for_role(user.as_deref()).await?;
                self.set_authorization(c, user.as_deref(), *local)?;
                if *reset { "RESET" } else { "SET" }
            }
            Utility::Reset(name) => {
                self.set(c, name, None, false)?;
                "RESET"
            }
            Utility::ResetAll => {
                self.state.settings.get_mut().reset_all();
                self.changed_settings();
                "RESET"
            }
            Utility::Show(_) | Utility::ShowAll => {
                self.show(c, u, formats, describe)?;
                "SHOW"
            }
            Utility::Discard(what) => return Ok(self.discard(what).map(Some)?),
            Utility::Prepare { name, types, stmt } => {
                self.prepare_sql(name, types, stmt).await?;
                "PREPARE"
            }
            Utility::Execute { name, args } => {
                let mut run = self.execute_sql(c, name, args.as_ref(), formats).await?;
                self.finish_run(c, &mut run, 0, describe).await?;
                return Ok(None);
            }
            Utility::ExplainExecute {
                options,
                name,
                args,
            } => {
                let run = self.explain_sql(c, options, name, args.as_ref());
                let mut run = run.await?;
                self.finish_run(c, &mut run, 0, describe).await?;
                return Ok(None);
            }
            Utility::Deallocate(name) => {
                self.deallocate(name.as_deref())?;
                if name.is_none() {
                    "DEALLOCATE ALL"
                } else {
                    "DEALLOCATE"
                }
            }
            Utility::Declare { .. } => {
                self.declare(u).await?;
                "DECLARE CURSOR"
            }
            Utility::Fetch {
                name,
                direction,
                moving,
            } => {
                let fetched = self.fetch(c, name, *direction, *moving, formats, describe);
                return fetched.await.map(Some);
            }
            Utility::Close(name) => {
                self.close_cursors(name.as_deref())?;
                if name.is_none() {
                    "CLOSE CURSOR ALL"
                } else {
                    "CLOSE CURSOR"
                }
            }
            Utility::Copy(copy) => return self.copy(c, copy).await.map(Some),
            Utility::SetConstraints { names, deferred } => {
                self.set_constraints(c, names, *deferred).await?;
                "SET CONSTRAINTS"
            }
            Utility::Listen(channel) => {
                self.listen(Listening::To(cut_name(channel).into()));
                "LISTEN"
            }
            Utility::Unlisten(channel) => {
                self.listen(match channel {
                    Some(c) => Listening::Not(cut_name(c).into()),
                    None => Listening::Nothing,
                });
                "UNLISTEN"
            }
            Utility::Notify { channel, payload } => {
                self.notify(cut_name(channel), payload).await?;
                "NOTIFY"
            }
            Utility::Checkpoint => {
                self.checkpoint()?;
                "CHECKPOINT"
            }
            Utility::WaitFor(w) => {
                let status = self.wait_for(c, w).await?;
                self.text_rows(c, u, vec![vec![status.to_owned()]], formats, describe)?;
                "WAIT"
            }
            Utility::Unsupported(what) => return Err(Error::unsupported(what).into()),
            Utility::Begin { .. }
            | Utility::Commit { .. }
            | Utility::Rollback { .. }
            | Utility::RollbackTo(_) => unreachable!("run by the caller"),
        };
        Ok(Some(tag.to_owned()))
    }

    /// The columns of what it shows, if it shows anything.
    pub(super) fn utility_columns(&mut self, u: &Utility) -> Result<Option<Vec<Column>>> {
        let text = |n: &str| Column::new(n, Type::Text);
        Ok(match u {
            Utility::Show(name) => {
                let s = self.state.settings.get_mut();
                let at = s.place(name)?;
                Some(vec![text(s.name(at))])
            }
            Utility::WaitFor(_) => Some(vec![text("status")]),
            Utility::ExplainExecute { options, .. } => {
                let json = options.to_ascii_lowercase().contains("json");
                let ty = if json { Type::Json } else { Type::Text };
                Some(vec![Column::new("QUERY PLAN", ty)])
            }
            Utility::ShowAll => Some(vec![text("name"), text("setting"), text("description")]),
            Utility::Execute { name, .. } => {
                let st = self.find_statement(name)?.clone();
                self.columns_of(&st)?
            }
            Utility::Fetch {
                name,
                moving: false,
                ..
            } => match self.cursor_columns(name) {
                // Whether there is such a cursor is asked when it runs.
                Err(e) if e.code() == SqlState::INVALID_CURSOR_NAME => None,
                columns => Some(columns?),
            },
            _ => None,
        })
    }

    fn show<C: Client>(
        &mut self,
        c: &mut C,
        u: &Utility,
        formats: &Formats,
        describe: bool,
    ) -> Result<()> {
        let rows: Vec<Vec<String>> = match u {
            Utility::Show(name) => {
                let value = match self.transaction_mode(&name.to_ascii_lowercase()) {
                    Some(v) => v,
                    None => self.state.settings.get_mut().show(name).unwrap_or_default(),
                };
                vec![vec![value]]
            }
            _ => {
                let s = self.state.settings.get_mut();
                let row = |(n, v, d): (&str, String, &str)| vec![n.to_owned(), v, d.to_owned()];
                s.all().map(row).collect()
            }
        };
        self.text_rows(c, u, rows, formats, describe)
    }

    /// Gives these rows as those of the statement, which has columns of texts.
    fn text_rows<C: Client>(
        &mut self,
        c: &mut C,
        u: &Utility,
        rows: Vec<Vec<String>>,
        formats: &Formats,
        describe: bool,
    ) -> Result<()> {
        let columns = self.utility_columns(u)?.expect("it gives rows");
        if describe {
            c.row_description(&columns, &formats.list(columns.len()));
        }
        for r in rows {
            c.row(columns.len(), |out| {
                for (i, v) in r.iter().enumerate() {
                    put_value(
                        &Value::text(v),
                        Type::Text,
                        formats.of(i),
                        &self.output,
                        &mut self.scratch,
                        out,
                    );
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn set<C: Client>(
        &mut self,
        c: &mut C,
        name: &str,
        value: Option<&[SetValue]>,
        local: bool,
    ) -> Result<()> {
        let text = value.map(|v| joined(name, v));
        if self.set_mode_by_name(name, text.as_deref())? {
            return Ok(());
        }
        match name.to_ascii_lowercase().as_str() {
            "role" => {
                let role = text.as_deref().filter(|r| *r != "none");
                return self.set_role(c, role, local);
            }
            "session_authorization" => return self.set_authorization(c, text.as_deref(), local),
            _ => {}
        }
        self.local_warning(c, local);
        let superuser = self.state.is_superuser();
        self.state.check_setting(name, text.as_deref())?;
        let span = if local { Span::Local } else { Span::Session };
        let s = self.state.settings.get_mut();
        s.set(name, text.as_deref(), span, superuser)?;
        self.changed_settings();
        Ok(())
    }

    pub(super) fn local_warning<C: Client>(&mut self, c: &mut C, local: bool) {
        if local && self.block.kind == Kind::None {
            let e = "SET LOCAL can only be used in transaction blocks";
            self.warn(c, SqlState::NO_ACTIVE_SQL_TRANSACTION, e);
        }
    }

    /// After a change: outside of a block it is committed at once.
    pub(super) fn changed_settings(&mut self) {
        let s = self.state.settings.get_mut();
        if self.block.kind == Kind::None {
            s.commit();
        }
        self.follow_settings();
    }

    /// Makes what depends on settings follow them.
    pub(super) fn follow_settings(&mut self) {
        let s = self.state.settings.get_mut();
        let name = s.show("application_name").unwrap_or_default();
        let mut a = self.handle.activity.lock();
        if a.application_name != name {
            a.application_name = name;
        }
        drop(a);
        if let Some(t) = &mut self.block.txn {
            t.set_durability(s.hot.durability());
        }
        self.stale = true;
    }

    fn discard(&mut self, what: &str) -> Result<String> {
        match what {
            "plans" => {}
            "sequences" => self.state.discard_sequences(),
            "temp" | "temporary" => self.discard_temp()?,
            _ => {
                if self.block.kind != Kind::None {
                    return Err(Error::new(
                        SqlState::ACTIVE_SQL_TRANSACTION,
                        "DISCARD ALL cannot run inside a transaction block",
                    ));
                }
                self.close_cursors(None)?;
                self.drop_portals();
                self.discard_temp()?;
                let s = self.state.settings.get_mut();
                let user = s
                    .reset_value(settings::find("session_authorization").expect("ours"))
                    .to_owned();
                s.force("session_authorization", &user, Span::Session);
                s.force("role", "none", Span::Session);
                s.reset_all();
                self.changed_settings();
                self.restore_roles();
                self.deallocate(None)?;
                self.state.discard_sequences();
                self.state.drop_locks();
                self.unlisten();
            }
        }
        Ok(format!("DISCARD {}", what.to_uppercase()))
    }
}

/// A name as long as names may be.
fn cut_name(name: &str) -> &str {
    &name[..crate::catalog::cut(name)]
}

/// The values of SET as one text: lists of names are quoted where they need to be.
fn joined(name: &str, values: &[SetValue]) -> String {
    let list =
        name.eq_ignore_ascii_case("search_path") || name.eq_ignore_ascii_case("temp_tablespaces");
    let one = |v: &SetValue| {
        if list {
            quoted(&v.text)
        } else {
            v.text.clone()
        }
    };
    values.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn quoted(n: &str) -> String {
    let plain = n.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && n.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain {
        n.to_owned()
    } else {
        format!("\"{}\"", n.replace('"', "\"\""))
    }
}

/// `-c name=value` and `--name=value` of the start-up parameter `options`; a backslash takes the next character as it is.
pub(super) fn options(text: &str) -> Result<Vec<(String, String)>> {
    let mut words = vec![String::new()];
    let mut chars = text.chars();
    while let Some(ch) = chars.next() {
        match ch {
            '\\' => words.last_mut().expect("never empty").extend(chars.next()),
            c if c.is_whitespace() => words.push(String::new()),
            c => words.last_mut().expect("never empty").push(c),
        }
    }
    words.retain(|w| !w.is_empty());
    let mut out = Vec::new();
    let mut words = words.into_iter();
    while let Some(w) = words.next() {
        let pair = if w == "-c" {
            words.next()
        } else if let Some(rest) = w.strip_prefix("-c") {
            Some(rest.to_owned())
        } else {
            w.strip_prefix("--").map(|r| r.to_owned())
        };
        let set = pair.as_deref().and_then(|p| p.split_once('='));
        let (name, value) = set.ok_or_else(|| {
            Error::new(
                SqlState::SYNTAX_ERROR,
                format!("invalid command-line argument for server process: {w}"),
            )
        })?;
        out.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(out)
}

/// The formats that fit this many columns.
pub(super) fn fitting(f: &Formats, columns: usize) -> Formats {
    match f {
        Formats::Each(v) if v.len() != columns => Formats::Text,
        f => f.clone(),
    }
}

/// All columns in one format.
pub(super) fn all(format: Format) -> Formats {
    match format {
        Format::Text => Formats::Text,
        Format::Binary => Formats::Binary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_up_options() {
        let o = options(r"-c a=b\ c --lock-timeout=5  -cgeqo=off").unwrap();
        let o: Vec<_> = o.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(o, [("a", "b c"), ("lock_timeout", "5"), ("geqo", "off")]);
        assert!(options("-x").is_err());
    }

    #[test]
    fn names_in_lists_are_quoted() {
        let v = |t: &str| SetValue {
            text: t.into(),
            bare: false,
        };
        assert_eq!(joined("search_path", &[v("a"), v("B c")]), "a, \"B c\"");
        assert_eq!(joined("DateStyle", &[v("ISO"), v("DMY")]), "ISO, DMY");
    }
}
