//! CREATE VIEW, and the options of views. A view is its query's text, with the search path under which it was bound. Each `*` in it is replaced by the
//! columns that it stands for, so that a column added to a table later does not show in the view. NATURAL joins are kept as they
//! were written, and do join by a common column that is added later.
//!
//! What the query names is read with the rights of the view's owner, or with `security_invoker` of the role that reads: see
//! [`super::privileges::reader_in`].
//!
//! Left out on purpose: materialized views, WITH CHECK OPTION and `security_barrier` (0A000).

use super::create_table::plain_column;
use super::work::Work;
use crate::catalog::Resolved;
use crate::types::typename::format_type;
use base::schema::{Column, DefaultFor, Object, Relation, ViewDef};
use base::{ColumnType, Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{CreateTableOptions, CreateView, ObjectName, SqlOption};
use sqlparser::tokenizer::Location;

impl Work<'_> {
    pub(super) fn create_view(&mut self, c: &CreateView) -> Result<String> {
        let tag = "CREATE VIEW".to_string();
        if c.materialized {
            return Err(Error::unsupported("a materialized view"));
        }
        let security_invoker = match &c.options {
            CreateTableOptions::None => false,
            CreateTableOptions::With(options) => read_options(options)?,
            _ => return Err(Error::unsupported("an option of a view")),
        };
        let (schema, path) = (&self.schema, self.ctx.search_path);
        let text = crate::bind::respelled(c.query.to_string())?;
        let query = crate::bind::parse_query(&text)?;
        let shape = self.ctx.analyzer.query(schema, path, &query)?;
        let query = super::expr_text::pin_types(self, &without_stars(text, shape.stars));
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
            security_invoker,
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
                if def.depends_on.contains(&v.id) {
                    return Err(Error::new(
                        SqlState::INVALID_OBJECT_DEFINITION,
                        format!(
                            "infinite recursion detected in rules for relation \"{}\"",
                            v.name
                        ),
                    ));
                }
                (def.id, def.owner, def.acl) = (v.id, v.owner, v.acl.clone());
            }
            Some(other) => return Err(self.wrong_kind(&other, "view")),
        }
        self.put(Object::View(def));
        Ok(tag)
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
        for (name, value) in options {
            let on = view_option(name, value.as_deref().unwrap_or("false"))?;
            if name == SECURITY_INVOKER {
                def.security_invoker = on;
            }
        }
        self.put(Object::View(def));
        Ok(())
    }
}

const SECURITY_INVOKER: &str = "security_invoker";

/// The options of a view: whether what it reads is read with the reader's rights.
fn read_options(options: &[SqlOption]) -> Result<bool> {
    let mut invoker = false;
    for o in options {
        let (name, value) = match o {
            SqlOption::KeyValue { key, value } => (key.value.to_lowercase(), value.to_string()),
            SqlOption::Ident(i) => (i.value.to_lowercase(), "true".into()),
            other => return Err(Error::unsupported(format!("option {other} of a view"))),
        };
        let on = view_option(&name, &value)?;
        invoker |= on && name == SECURITY_INVOKER;
    }
    Ok(invoker)
}

/// The value of an option. Barriers keep functions of users away from hidden rows; there are none here, but they are not promised.
fn view_option(name: &str, value: &str) -> Result<bool> {
    let text = value.trim_matches('\'').to_lowercase();
    let on = match text.as_str() {
        "true" | "on" | "yes" | "1" => true,
        "false" | "off" | "no" | "0" => false,
        _ if name == "check_option" => true,
        _ => {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("invalid value for boolean option \"{name}\": {text}"),
            ));
        }
    };
    match name {
        SECURITY_INVOKER => Ok(on),
        "security_barrier" | "check_option" if !on => Ok(false),
        "security_barrier" | "check_option" => {
            Err(Error::unsupported(format!("option {name} of a view")))
        }
        _ => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("unrecognized parameter \"{name}\""),
        )),
    }
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
