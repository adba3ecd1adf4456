//! COPY, run.
//!
//! `FROM STDIN` is an INSERT of one row, prepared once and run for a group of rows at a time ([`crate::exec::Each`]): a group is a
//! statement, which can be undone and run again when it meets a lock, since the client will not send its rows twice. The whole COPY is
//! one transaction. Its WHERE is bound as RETURNING of that INSERT, which sees the new row by its columns' names.
//! `TO STDOUT` is a SELECT whose rows are written in another way.

use super::super::Session;
use super::super::client::{Client, Column, CopyInput, Format};
use super::super::exit::Exit;
use super::super::parse::parse_one;
use super::super::plans::Plan;
use super::super::prepared::{Body, Statement, without_parameters};
use super::super::row::{Formats, put_row};
use super::super::run::{Run, Sink, Work, interruption};
use super::load::{Load, Taken};
use super::{CopyFormat, CopyOptions, CopyStmt, CopyWhat, Header, bad_data, binary, csv, text};
use crate::ddl::expr_text::tokens;
use crate::ddl::privileges::{check_named_namespace, check_relation, usable_path};
use crate::engine::Engine;
use crate::exec::{Each, ExecContext, RowView};
use crate::types::{OutputSettings, text as text_values, typename};
use base::schema::privilege;
use base::{Error, Result, SqlState, Type};
use futures::future::{Either, select};
use sqlparser::tokenizer::Token;
use std::pin::pin;
use std::sync::Arc;
use txn::Stop;

/// Longest line.
const MAX_LINE: usize = 256 << 20;

/// Writes rows of a COPY TO.
pub struct CopyOut {
    options: CopyOptions,
    names: Vec<String>,
    line: Vec<u8>,
    field: String,
    started: bool,
}

impl CopyOut {
    /// Writes one row.
    pub fn row<C: Client>(
        &mut self,
        c: &mut C,
        row: &RowView<'_>,
        plan: &Plan,
        settings: &OutputSettings,
    ) {
        if self.options.format == CopyFormat::Binary {
            // The header stands in one message with what comes first: clients count messages as rows.
            self.line.clear();
            self.binary_head();
            let n = plan.columns.len() as i16;
            self.line.extend_from_slice(&n.to_be_bytes());
            put_row(
                row,
                &plan.columns,
                &Formats::Binary,
                settings,
                &mut self.field,
                &mut self.line,
            );
            return c.copy_data(&self.line);
        }
        self.head(c);
        self.line.clear();
        let o = &self.options;
        for (i, col) in plan.columns.iter().enumerate() {
            if i > 0 {
                self.line.push(o.delimiter);
            }
            let v = row.get(i);
            if v.is_null() {
                self.line.extend_from_slice(o.null.as_bytes());
                continue;
            }
            self.field.clear();
            text_values::output(&v, col.ty.ty, settings, &mut self.field);
            match o.format {
                CopyFormat::Csv => {
                    let alone = plan.columns.len() == 1;
                    csv::put(&self.field, o, &col.name, alone, &mut self.line);
                }
                _ => text::put(&self.field, o, &mut self.line),
            }
        }
        self.line.push(b'\n');
        c.copy_data(&self.line);
    }

    fn binary_head(&mut self) {
        if !std::mem::replace(&mut self.started, true) {
            binary::put_header(&mut self.line);
        }
    }

    fn head<C: Client>(&mut self, c: &mut C) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        self.line.clear();
        match self.options.format {
            _ if self.options.header == Header::No => return,
            f => {
                for (i, n) in self.names.iter().enumerate() {
                    if i > 0 {
                        self.line.push(self.options.delimiter);
                    }
                    if f == CopyFormat::Csv {
                        // FORCE_QUOTE is about values.
                        csv::put_name(n, &self.options, &mut self.line);
                    } else {
                        text::put(n, &self.options, &mut self.line);
                    }
                }
                self.line.push(b'\n');
            }
        }
        c.copy_data(&self.line);
    }

    /// Says how the rows will come.
    pub fn begin<C: Client>(&mut self, c: &mut C, columns: &[Column]) {
        self.started = false;
        self.names = columns.iter().map(|c| c.name.to_string()).collect();
        let f = match self.options.format {
            CopyFormat::Binary => Format::Binary,
            _ => Format::Text,
        };
        c.copy_out_response(self.names.len(), f);
    }

    /// After the last row.
    pub fn end<C: Client>(&mut self, c: &mut C) {
        if self.options.format == CopyFormat::Binary {
            self.line.clear();
            self.binary_head();
            binary::put_end(&mut self.line);
            c.copy_data(&self.line);
        } else {
            self.head(c);
        }
        c.copy_done();
    }
}

/// `"a""b"`.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn list(names: &[String]) -> String {
    names
        .iter()
        .map(|n| quote(n))
        .collect::<Vec<_>>()
        .join(", ")
}

impl<E: Engine> Session<E> {
    /// Runs COPY; the tag.
    pub(in crate::session) async fn copy<C: Client>(
        &mut self,
        c: &mut C,
        copy: &CopyStmt,
    ) -> Result<String, Exit> {
        let rows = if copy.from {
            let own = self.autocommit();
            self.begin_implicit();
            let rows = self.copy_from(c, copy).await?;
            if own {
                self.commit().await?;
            }
            rows
        } else {
            self.copy_to(c, copy).await?
        };
        Ok(format!("COPY {rows}"))
    }

    /// Schema, name and columns of the table. `right`: what COPY needs on it.
    /// The table, the columns that are copied, and whether these are not all that it has.
    fn copy_target(&mut self, what: &CopyWhat, right: u32) -> Result<(String, Vec<String>, bool)> {
        let CopyWhat::Table {
            schema,
            name,
            columns,
        } = what
        else {
            return Err(Error::internal("COPY of a query has no table"));
        };
        if self.stale {
            self.refresh();
        }
        let catalog = match &self.block.txn {
            Some(t) => t.catalog(),
            None => self.temp.over(self.shared.engine.catalog()),
        };
        let role = self.state.current_role.get();
        if let Some(n) = schema {
            check_named_namespace(&catalog.schema, role, n)?;
        }
        let path = usable_path(&catalog.schema, role, &self.path);
        let found = crate::catalog::find(&catalog.schema, &path, schema.as_deref(), name);
        let resolved = found.ok_or_else(|| {
            let dot = schema.as_ref().map(|s| format!("{s}.")).unwrap_or_default();
            Error::new(
                SqlState::UNDEFINED_TABLE,
                format!("relation \"{dot}{name}\" does not exist"),
            )
        })?;
        let mut generated = vec![];
        let mut all: Vec<String> = match &resolved {
            crate::catalog::Resolved::Relation(base::schema::Relation::Table(t)) => {
                let live = || t.def.columns.iter().filter(|c| !c.dropped);
                generated.extend(live().filter(|c| c.generated).map(|c| c.name.clone()));
                live().map(|c| c.name.clone()).collect()
            }
            crate::catalog::Resolved::Virtual(v) => {
                v.columns().iter().map(|(n, _)| (*n).to_owned()).collect()
            }
            other => {
                if let crate::catalog::Resolved::Relation(r) = other {
                    check_relation(&catalog.schema, role, r, right)?;
                }
                return Err(Error::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("cannot copy \"{name}\": it is not a table"),
                )
                .hint("Try the COPY (SELECT ...) TO variant."));
            }
        };
        for n in columns {
            if !all.contains(n) {
                return Err(Error::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{n}\" of relation \"{name}\" does not exist"),
                ));
            }
            if generated.contains(n) {
                return Err(Error::new(
                    SqlState::INVALID_COLUMN_REFERENCE,
                    format!("column \"{n}\" is a generated column"),
                )
                .detail("Generated columns cannot be used in COPY."));
            }
        }
        all.retain(|n| !generated.contains(n));
        let columns = if columns.is_empty() {
            all
        } else {
            columns.clone()
        };
        let table = match schema {
            Some(s) => format!("{}.{}", quote(s), quote(name)),
            None => quote(name),
        };
        Ok((table, columns, !generated.is_empty()))
    }

    /// The query of a COPY TO. Which columns a table has shows where it is read: at a replica that may be in a newer schema.
    fn copied(&mut self, what: &CopyWhat) -> Result<Statement> {
        let parsed = match what {
            CopyWhat::Query(q) => Some(q.clone()),
            CopyWhat::Table { columns, .. } => {
                let (table, named, some) = self.copy_target(what, privilege::SELECT)?;
                let named = match columns.is_empty() && !some {
                    true => "*".to_owned(),
                    false => list(&named),
                };
                parse_one(&format!("SELECT {named} FROM {table}"))?
            }
        };
        without_parameters(self.statement(parsed, &[]))
    }

    async fn copy_to<C: Client>(&mut self, c: &mut C, copy: &CopyStmt) -> Result<u64, Exit> {
        let st = match self.copied(&copy.what) {
            Err(e) if self.renew_schema(&e).await? => self.copied(&copy.what),
            st => st,
        };
        let st = Arc::new(st?);
        let Body::Rows(_) = st.body else {
            return Err(Error::unsupported("COPY of this statement").into());
        };
        let plan = self.plan(&st)?;
        if !plan.gives_rows() {
            return Err(Error::unsupported("COPY of a query without RETURNING").into());
        }
        let mut out = CopyOut {
            options: copy.options.clone(),
            names: Vec::new(),
            line: Vec::new(),
            field: String::new(),
            started: false,
        };
        let mut run = Run::new(st, plan, Vec::new(), Formats::Text).untold();
        let work = Work::Rows {
            run: &mut run,
            max_rows: 0,
            describe: false,
            sink: Sink::Copy(&mut out),
        };
        Ok(self.execute_work(c, work).await?.rows)
    }

    async fn copy_from<C: Client>(&mut self, c: &mut C, copy: &CopyStmt) -> Result<u64> {
        let (table, columns, _) = self.copy_target(&copy.what, privilege::INSERT)?;
        let marks: Vec<String> = (1..=columns.len()).map(|i| format!("${i}")).collect();
        let mut sql = match columns.is_empty() {
            true => format!("INSERT INTO {table} DEFAULT VALUES"),
            false => format!(
                // The data's own values count, in identity columns as well.
                "INSERT INTO {table} ({}) OVERRIDING SYSTEM VALUE VALUES ({})",
                list(&columns),
                marks.join(", ")
            ),
        };
        if let Some(filter) = &copy.filter {
            sql.push_str(&format!(" RETURNING ({filter}\n)"));
        }
        let parsed = parse_one(&sql)?;
        if let Some(filter) = &copy.filter {
            // The numbers are the columns' places here, and no values of the client's.
            for t in tokens(filter) {
                if let Token::Placeholder(p) = t {
                    let what = format!("there is no parameter {p}");
                    return Err(Error::new(SqlState::UNDEFINED_PARAMETER, what));
                }
            }
        }
        // Places in a text that the client has not sent are of no use to it.
        let st = self.statement(parsed, &[]);
        let st = Arc::new(st.map_err(|e| e.at(0))?);
        let plan = self.plan(&st)?;
        self.ensure_txn(false);
        let txn = self.block.txn.as_ref().expect("begun");
        if txn.is_read_only() {
            return Err(Error::new(
                SqlState::READ_ONLY_SQL_TRANSACTION,
                "cannot execute COPY FROM in a read-only transaction",
            ));
        }
        let role = self.state.current_role.get();
        let catalog = txn.catalog();
        super::super::planner_api::check_privileges(&catalog.schema, role, &plan.prepared)?;
        if copy.filter.is_some() && plan.columns[0].ty.ty != Type::Bool {
            return Err(Error::new(
                SqlState::DATATYPE_MISMATCH,
                format!(
                    "argument of WHERE must be type boolean, not type {}",
                    typename::format_type(plan.columns[0].ty.ty, -1)
                ),
            ));
        }
        let each = Each::new(plan.prepared.clone())?;
        let format = match copy.options.format {
            CopyFormat::Binary => Format::Binary,
            _ => Format::Text,
        };
        c.copy_in_response(columns.len(), format);
        c.flush().await?;
        let mut load = Load::new(each, columns, copy.what.name());
        let r = self.receive(c, copy, &mut load).await;
        if r.is_err() {
            c.copy_in_failed();
        }
        r?;
        Ok(load.total)
    }

    async fn receive<C: Client>(
        &mut self,
        c: &mut C,
        copy: &CopyStmt,
        load: &mut Load,
    ) -> Result<()> {
        let mut buf: Vec<u8> = Vec::new();
        let mut at_end = false;
        let mut head =
            copy.options.format == CopyFormat::Binary || copy.options.header != Header::No;
        loop {
            let done = match self.copy_input(c).await? {
                CopyInput::Data(d) => {
                    if at_end {
                        continue;
                    }
                    if buf.is_empty() {
                        buf = d
                    } else {
                        buf.extend_from_slice(&d)
                    }
                    false
                }
                CopyInput::Done => true,
                CopyInput::Fail(why) => {
                    return Err(Error::new(
                        SqlState::QUERY_CANCELED,
                        format!("COPY from stdin failed: {why}"),
                    ));
                }
            };
            if let Some(why) = self.handle.interrupted() {
                return Err(interruption(why));
            }
            load.line_ends.last = done;
            let mut from = 0;
            while !at_end {
                let taken = load.take(&buf[from..], copy, &mut head, &self.output)?;
                match taken {
                    Taken::More => break,
                    Taken::End => at_end = true,
                    Taken::Bytes(n) => from += n,
                }
                if load.is_full() {
                    self.insert_group(load).await?;
                }
            }
            buf.drain(..from);
            if buf.len() > MAX_LINE {
                return Err(bad_data("a line of the data is too long"));
            }
            if done {
                if !at_end && !buf.is_empty() {
                    return Err(load.error(bad_data("unexpected end of the data")));
                }
                return self.insert_group(load).await;
            }
        }
    }

    /// Waits for more from the client, unless the statement is ended from outside.
    async fn copy_input<C: Client>(&mut self, c: &mut C) -> Result<CopyInput> {
        loop {
            {
                let (input, interrupted) = (pin!(c.copy_input()), pin!(self.handle.interruption()));
                if let Either::Left((input, _)) = select(input, interrupted).await {
                    return input;
                }
            }
            if let Some(why) = self.handle.interrupted() {
                return Err(interruption(why));
            }
            self.handle.end_wait();
        }
    }

    /// Inserts the rows at hand as one statement, again and again while it has to wait.
    async fn insert_group(&mut self, load: &mut Load) -> Result<()> {
        if load.is_empty() {
            return Ok(());
        }
        loop {
            let e = match self.insert_rows(load) {
                Ok(n) => {
                    load.done(n);
                    return Ok(());
                }
                Err(e) => e,
            };
            let txn = self.block.txn.as_mut().expect("begun");
            match e {
                Stop::Error(e) => {
                    txn.fail_statement();
                    return Err(e);
                }
                Stop::Blocked => {
                    txn.rollback_statement();
                    self.wait_for_lock().await?;
                }
                Stop::Restart => txn.rollback_statement(),
            }
        }
    }

    fn insert_rows(&mut self, load: &mut Load) -> Result<u64, Stop> {
        let Session {
            block,
            state,
            output,
            ..
        } = self;
        let txn = block.txn.as_mut().expect("begun");
        txn.begin_statement()?;
        *state.catalog.get_mut() = txn.catalog();
        let cx = ExecContext {
            settings: output,
            session: state,
            facts: state,
        };
        let n = load.insert(txn, &cx)?;
        txn.end_statement().map(|()| n)
    }
}
