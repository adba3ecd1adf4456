//! CREATE VIEW, and the options of views. A view is its query's text, with the search path under which it was bound. Each `*` in it is replaced by the
//! columns that it stands for, so that a column added to a table later does not show in the view. NATURAL joins are kept as they
//! were written, and do join by a common column that is added later.
//!
//! What the query names is read with the rights of the view's owner, or with `security_invoker` of the role that reads: see
//! [`super::privileges::reader_in`].
//!
//! WITH CHECK OPTION is the option `check_option`; what it does to rows stands in [`crate::bind`]'s `through`.
//!
//! Left out on purpose: materialized views, `security_barrier`, defaults of a view's columns (0A000).

use super::create_table::plain_column;
use super::work::Work;
use crate::catalog::Resolved;
use crate::types::typename::format_type;
use base::schema::{CheckOption, Column, DefaultFor, Object, Relation, Schema, ViewDef};
use base::{ColumnType, Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{CreateTableOptions, CreateView, ObjectName, SqlOption};
use sqlparser::tokenizer::Location;

impl Work<'_> {
    pub(super) fn create_view(&mut self, c: &CreateView) -> Result<String> {
        let tag = "CREATE VIEW".to_string();
        if c.materialized {
            return Err(Error::unsupported("a materialized view"));
        }
        let options = match &c.options {
            CreateTableOptions::None => Options::default(),
            CreateTableOptions::With(options) => read_options(options)?,
            _ => return Err(Error::unsupported("an option of a view")),
        };
        let (schema, path) = (&self.schema, self.ctx.search_path);
        let text = crate::bind::query_text(&c.query)?;
        let query = crate::bind::parse_query(&text)?;
        let shape = self.ctx.analyzer.query(schema, path, &query)?;
        let query = super::expr_text::pin_types(self, &without_stars(text, shape.stars));
        self.gives(&query, &shape.columns)?;
        let of = |id: &Oid| crate::catalog::by_oid(&self.schema, *id).map(|r| r.namespace());
        let own = self.schema.temporary();
        let over_own = own.is_some() && shape.depends_on.iter().any(|id| of(id) == own);
        let (namespace, name) = self.target_in(&c.name, c.temporary || over_own)?;
        if over_own && !c.temporary {
            let what = format!("view \"{name}\" will be a temporary view");
            self.notice(SqlState([b'0'; 5]), what);
        }
        let old = self.schema.lookup(namespace, &name);
        if c.if_not_exists && old.is_some() {
            self.skip_existing(&name);
            return Ok(tag);
        }
        if c.columns.len() > shape.columns.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "CREATE VIEW specifies more column names than columns",
            ));
        }
        let mut columns: Vec<Column> = vec![];
        for (i, (column, ty)) in shape.columns.into_iter().enumerate() {
            let column = match c.columns.get(i) {
                Some(given) => self.name(&given.name),
                None => column,
            };
            if columns.iter().any(|c| c.name == column) {
                return Err(Error::new(
                    SqlState::DUPLICATE_COLUMN,
                    format!("column \"{column}\" specified more than once"),
                ));
            }
            let ty = match ty.ty {
                Type::Unknown => ColumnType::plain(Type::Text),
                _ => ty,
            };
            columns.push(plain_column(column, ty));
        }
        let mut def = ViewDef {
            id: 0,
            namespace,
            name,
            owner: self.ctx.role,
            columns,
            query,
            search_path: self.ctx.search_path.to_vec(),
            depends_on: shape.depends_on,
            acl: self.born_with(DefaultFor::Tables, self.ctx.role, namespace),
            security_invoker: options.security_invoker,
            check_option: options.check_option,
        };
        match old.and_then(|id| crate::catalog::by_oid(&self.schema, id)) {
            None => def.id = self.oid(),
            Some(_) if !c.or_replace => {
                self.must_be_free(namespace, &def.name)?;
                self.no_type_named(namespace, &def.name)?;
            }
            Some(Resolved::Relation(Relation::View(v))) => {
                self.must_own("view", &v.name, v.owner)?;
                check_replacement(&v.columns, &def.columns)?;
                if reads(&self.schema, &def.depends_on, v.id) {
                    return Err(Error::new(
                        SqlState::INVALID_OBJECT_DEFINITION,
                        format!(
                            "infinite recursion detected in rules for relation \"{}\"",
                            v.name
                        ),
                    ));
                }
                (def.id, def.owner, def.acl) = (v.id, v.owner, v.acl.clone());
                for (new, old) in def.columns.iter_mut().zip(&v.columns) {
                    new.acl.clone_from(&old.acl);
                }
            }
            Some(other) => return Err(self.wrong_kind(&other, "view")),
        }
        self.check_writable(&def)?;
        self.put(Object::View(def));
        Ok(tag)
    }

    /// XX000 unless these are the columns that are read of a view with this text.
    fn gives(&self, query: &str, columns: &[(String, ColumnType)]) -> Result<()> {
        let kept = crate::bind::parse_query(query)?;
        let (schema, path) = (&self.schema, self.ctx.search_path);
        let kept = self.ctx.analyzer.query(schema, path, &kept)?;
        match kept.columns == columns {
            true => Ok(()),
            false => Err(Error::internal(format!(
                "a view's text has other columns: {query}"
            ))),
        }
    }

    /// 0A000 for WITH CHECK OPTION of a view through which no rows are written.
    fn check_writable(&self, def: &ViewDef) -> Result<()> {
        if def.check_option.is_none() {
            return Ok(());
        }
        let writable = self.ctx.analyzer.writable_columns(&self.schema, def);
        let why = match writable {
            Ok(columns) if columns.contains(&true) => return Ok(()),
            Ok(_) => "Views that have no updatable columns are not automatically updatable.".into(),
            Err(e) if e.code() == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => {
                e.fields().detail.clone()
            }
            Err(e) => return Err(e),
        };
        Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "WITH CHECK OPTION is supported only on automatically updatable views",
        )
        .hint(why))
    }

    /// ALTER VIEW … SET (…) and RESET (…).
    pub(super) fn set_view_options(
        &mut self,
        name: &ObjectName,
        if_exists: bool,
        options: &[(String, Option<String>)],
    ) -> Result<()> {
        let found = match self.find(name)? {
            None if if_exists => return self.skip_missing(name),
            _ => self.resolve(name)?,
        };
        let Resolved::Relation(Relation::View(v)) = &found else {
            return Err(self.wrong_kind(&found, "view"));
        };
        self.must_own("view", &v.name, v.owner)?;
        let mut def = (**v).clone();
        let mut new = Options {
            security_invoker: def.security_invoker,
            check_option: def.check_option,
        };
        for (name, value) in options {
            new.set(name, value.as_deref())?;
        }
        (def.security_invoker, def.check_option) = (new.security_invoker, new.check_option);
        self.check_writable(&def)?;
        self.put(Object::View(def));
        Ok(())
    }
}

/// The options of a view.
#[derive(Default)]
struct Options {
    security_invoker: bool,
    check_option: Option<CheckOption>,
}

impl Options {
    /// Sets an option; none: to what it is when it is not given. Barriers keep functions of users away from hidden rows; there are none
    /// here, but they are not promised.
    fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let text = value.map(|v| v.trim_matches('\'').to_lowercase());
        let text = text.as_deref();
        match name {
            "security_invoker" => self.security_invoker = flag(name, text)?,
            "security_barrier" if !flag(name, text)? => {}
            "security_barrier" => {
                return Err(Error::unsupported(format!("option {name} of a view")));
            }
            "check_option" => {
                self.check_option = match text {
                    None => None,
                    Some("local") => Some(CheckOption::Local),
                    Some("cascaded") => Some(CheckOption::Cascaded),
                    Some(other) => {
                        let what = format!("invalid value for enum option \"{name}\": {other}");
                        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
                            .detail("Valid values are \"local\" and \"cascaded\"."));
                    }
                }
            }
            _ => {
                return Err(Error::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("unrecognized parameter \"{name}\""),
                ));
            }
        }
        Ok(())
    }
}

/// The value of an option that is on or off.
fn flag(name: &str, text: Option<&str>) -> Result<bool> {
    match text.unwrap_or("false") {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        text => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for boolean option \"{name}\": {text}"),
        )),
    }
}

/// The options that CREATE VIEW gives.
fn read_options(options: &[SqlOption]) -> Result<Options> {
    let mut read = Options::default();
    let mut given: Vec<String> = vec![];
    for o in options {
        let (name, value) = match o {
            SqlOption::KeyValue { key, value } => (key.value.to_lowercase(), value.to_string()),
            SqlOption::Ident(i) => (i.value.to_lowercase(), "true".into()),
            other => return Err(Error::unsupported(format!("option {other} of a view"))),
        };
        if given.contains(&name) {
            let what = format!("parameter \"{name}\" specified more than once");
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what));
        }
        read.set(&name, Some(&value))?;
        given.push(name);
    }
    Ok(read)
}

/// The text with the columns that each `*` stands for today, so that the view keeps them when a table gets more.
fn without_stars(text: String, mut stars: Vec<(Location, String)>) -> String {
    stars.sort_by_key(|(at, _)| (at.line, at.column));
    let mut out = text.clone();
    // From the end, so that what is ahead keeps its place.
    for (at, columns) in stars.into_iter().rev() {
        let lines = text.split_inclusive('\n');
        let before: usize = lines.take(at.line as usize - 1).map(str::len).sum();
        let line = &text[before..];
        let start = line.char_indices().nth(at.column as usize - 1);
        if let Some((i, '*')) = start {
            out.replace_range(before + i..before + i + 1, &columns);
        }
    }
    out
}

/// A replacement keeps the old columns and may add some: 42P16.
fn check_replacement(old: &[Column], new: &[Column]) -> Result<()> {
    let refuse = |what: String| Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, what));
    if new.len() < old.len() {
        return refuse("cannot drop columns from view".into());
    }
    for (o, n) in old.iter().zip(new) {
        if o.name != n.name {
            let what = format!(
                "cannot change name of view column \"{}\" to \"{}\"",
                o.name, n.name
            );
            let hint =
                "Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead.";
            return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, what).hint(hint));
        }
        if o.ty() != n.ty() {
            let shown = |c: &Column| format_type(c.ty().ty, c.typmod);
            return refuse(format!(
                "cannot change data type of view column \"{}\" from {} to {}",
                o.name,
                shown(o),
                shown(n)
            ));
        }
    }
    Ok(())
}

/// Whether one of the relations is this view, or reads it through other views.
fn reads(schema: &Schema, relations: &[Oid], view: Oid) -> bool {
    let mut seen: Vec<Oid> = Vec::new();
    let mut todo = relations.to_vec();
    while let Some(id) = todo.pop() {
        if id == view {
            return true;
        }
        if seen.contains(&id) {
            continue;
        }
        seen.push(id);
        if let Some(Resolved::Relation(Relation::View(v))) = crate::catalog::by_oid(schema, id) {
            todo.extend(&v.depends_on);
        }
    }
    false
}
