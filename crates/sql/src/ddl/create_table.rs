//! CREATE TABLE, and the columns that it shares with ALTER TABLE ADD COLUMN.
//!
//! Order of making, as PostgreSQL's, because it decides the names that are made up: sequences of serial columns, the
//! columns, CHECKs, PRIMARY KEY and UNIQUE, foreign keys.
//!
//! Left out on purpose: INHERITS, partitions (0A000). UNLOGGED tables are logged.

use super::column_type::serial;
use super::constraints::Pending;
use super::work::Work;
use base::schema::{Column, DefaultFor, Identity, Object, TableDef};
use base::{ColumnType, Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{
    self, ColumnDef, ColumnOption, CreateTable, CreateTableOptions, DataType, Expr, GeneratedAs,
    Ident, ObjectName, SequenceOptions, SqlOption, TableConstraint,
};
use txn::OnCommit;

/// Most columns of a table, dropped ones counted.
pub(super) const MAX_COLUMNS: usize = 1600;

const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "cmax", "xmax", "cmin", "xmin", "ctid"];

/// Where a column's values come from when an INSERT names none: a sequence that is made with the column.
struct Sequence<'a> {
    ty: Type,
    identity: Option<Identity>,
    options: &'a [SequenceOptions],
}

impl Work<'_> {
    pub(super) fn create_table(&mut self, c: &CreateTable) -> Result<String> {
        self.refuse_table_options(c)?;
        let Some(mut def) = self.new_table(c)? else {
            return Ok("CREATE TABLE".into());
        };
        let mut pending = vec![];
        let mut likes = vec![];
        for column in &c.columns {
            match super::like::clause(&column.name.value) {
                Some((options, name)) => likes.push(self.like(&mut def, &options, &name)?),
                None => self.add_column(&mut def, column, &mut pending)?,
            }
        }
        self.check_generated(&def)?;
        let own = c.constraints.iter().cloned();
        let own = own.map(|t| Pending::new(t, None));
        pending.extend(own);
        self.add_constraints(&mut def, pending)?;
        for like in likes {
            self.like_indexes(&mut def, like)?;
        }
        if let CreateTableOptions::With(options) = &c.table_options {
            super::split::of_table(&mut def, options)?;
        }
        self.put(Object::Table(def));
        Ok("CREATE TABLE".into())
    }

    pub(super) fn create_table_from_columns(
        &mut self,
        c: &CreateTable,
        columns: &[(String, ColumnType, Option<Oid>)],
    ) -> Result<Option<Oid>> {
        self.refuse_table_options(c)?;
        let Some(mut def) = self.new_table(c)? else {
            return Ok(None);
        };
        if c.columns.len() > columns.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "too many column names were specified",
            ));
        }
        // Another session may drop a domain, and sees no temporary table that has it.
        let temporary = self.schema.temporary() == Some(def.namespace);
        for (i, (name, ty, domain)) in columns.iter().enumerate() {
            let name = match c.columns.get(i) {
                Some(given) => self.name(&given.name),
                None => name.clone(),
            };
            // A literal whose type nothing decided is text.
            let ty = match ty.ty {
                Type::Unknown => ColumnType::plain(Type::Text),
                _ => *ty,
            };
            let mut column = plain_column(name, ty);
            column.domain = domain.filter(|_| !temporary);
            push_column(&mut def, column)?;
        }
        if let CreateTableOptions::With(options) = &c.table_options {
            super::split::of_table(&mut def, options)?;
        }
        let id = def.id;
        self.put(Object::Table(def));
        Ok(Some(id))
    }

    /// An empty definition under the new name; none when it is taken and IF NOT EXISTS says that this is fine.
    fn new_table(&mut self, c: &CreateTable) -> Result<Option<TableDef>> {
        let (namespace, name) = self.target_in(&c.name, c.temporary)?;
        let temporary = self.schema.temporary() == Some(namespace);
        if c.on_commit.is_some() && !temporary {
            return Err(Error::new(
                SqlState::INVALID_TABLE_DEFINITION,
                "ON COMMIT can only be used on temporary tables",
            ));
        }
        if c.if_not_exists && self.taken(namespace, &name) {
            self.skip_existing(&name);
            return Ok(None);
        }
        self.must_be_free(namespace, &name)?;
        self.no_type_named(namespace, &name)?;
        let id = self.oid();
        self.on_commit = match &c.on_commit {
            Some(ast::OnCommit::DeleteRows) => Some((id, OnCommit::DeleteRows)),
            Some(ast::OnCommit::Drop) => Some((id, OnCommit::Drop)),
            Some(ast::OnCommit::PreserveRows) | None => None,
        };
        Ok(Some(TableDef {
            id,
            storage: id,
            namespace,
            name,
            owner: self.ctx.role,
            row_version: 0,
            columns: vec![],
            indexes: vec![],
            checks: vec![],
            foreign_keys: vec![],
            acl: self.born_with(DefaultFor::Tables, self.ctx.role, namespace),
            rewrite_of: None,
        }))
    }

    pub(super) fn skip_existing(&mut self, name: &str) {
        self.notice(
            SqlState::DUPLICATE_TABLE,
            format!("relation \"{name}\" already exists, skipping"),
        );
    }

    fn refuse_table_options(&self, c: &CreateTable) -> Result<()> {
        let refused = [
            (c.like.is_some(), "CREATE TABLE LIKE"),
            (c.inherits.is_some(), "table inheritance"),
            (c.partition_by.is_some(), "table partitioning"),
            (c.partition_of.is_some(), "table partitioning"),
            (c.external, "external tables"),
            (c.or_replace, "CREATE OR REPLACE TABLE"),
            (c.clone.is_some(), "CREATE TABLE CLONE"),
        ];
        if let Some((_, what)) = refused.iter().find(|(on, _)| *on) {
            return Err(Error::unsupported(what));
        }
        match &c.table_options {
            CreateTableOptions::None => Ok(()),
            CreateTableOptions::With(options) => {
                // Split columns stand among the columns, once there are some.
                let is_split = |o: &SqlOption| matches!(o, SqlOption::KeyValue { key, .. } if key.value.eq_ignore_ascii_case("split"));
                let others: Vec<SqlOption> =
                    options.iter().filter(|o| !is_split(o)).cloned().collect();
                check_storage_parameters(&others)
            }
            _ => Err(Error::unsupported("this table option")),
        }
    }

    /// Adds a column; what constrains it is left in `pending`, its sequence is made.
    pub(super) fn add_column(
        &mut self,
        def: &mut TableDef,
        cd: &ColumnDef,
        pending: &mut Vec<Pending>,
    ) -> Result<()> {
        let name = self.name(&cd.name);
        let shown = |what: &str| format!("{what} for column \"{name}\" of table \"{}\"", def.name);
        let mut sequence = serial(&cd.data_type).map(|ty| Sequence {
            ty,
            identity: None,
            options: &[],
        });
        let ty = match &sequence {
            Some(s) => ColumnType::plain(s.ty),
            None => self.storable(&cd.data_type, &name)?,
        };
        let mut column = self.typed_column(name.clone(), ty, &cd.data_type)?;
        column.not_null = sequence.is_some();
        let (mut null, mut default): (Option<bool>, Option<&Expr>) = (None, None);
        for o in &cd.options {
            let named = o.name.clone();
            let key = || vec![index_column(&cd.name)];
            let mut constrain = |constraint: TableConstraint| {
                pending.push(Pending::new(constraint, Some(name.clone())));
            };
            match &o.option {
                ColumnOption::Null | ColumnOption::NotNull => {
                    let not = matches!(o.option, ColumnOption::NotNull);
                    if null == Some(!not) || !not && (sequence.is_some() || column.not_null) {
                        return Err(Error::new(
                            SqlState::SYNTAX_ERROR,
                            shown("conflicting NULL/NOT NULL declarations"),
                        ));
                    }
                    null = Some(not);
                    column.not_null |= not;
                }
                ColumnOption::Default(e) => {
                    if default.replace(e).is_some() || sequence.is_some() {
                        return Err(Error::new(
                            SqlState::SYNTAX_ERROR,
                            shown("multiple default values specified"),
                        ));
                    }
                }
                ColumnOption::PrimaryKey(p) => {
                    let mut p = p.clone();
                    (p.name, p.columns) = (named, key());
                    constrain(p.into());
                }
                ColumnOption::Unique(u) => {
                    let mut u = u.clone();
                    (u.name, u.columns) = (named, key());
                    constrain(u.into());
                }
                ColumnOption::ForeignKey(f) => {
                    let mut f = f.clone();
                    (f.name, f.columns) = (named, vec![cd.name.clone()]);
                    constrain(f.into());
                }
                ColumnOption::Check(k) => {
                    let mut k = k.clone();
                    k.name = named;
                    constrain(k.into());
                }
                ColumnOption::Generated {
                    generation_expr: Some(e),
                    ..
                } => self.mark_generated(def, &mut column, e, &o.option)?,
                ColumnOption::Generated {
                    generated_as,
                    sequence_options,
                    ..
                } => {
                    if sequence.is_some() {
                        let what = "multiple identity specifications";
                        return Err(Error::new(SqlState::SYNTAX_ERROR, shown(what)));
                    }
                    if default.is_some() || null == Some(false) {
                        let what = "both default and identity specified";
                        return Err(Error::new(SqlState::SYNTAX_ERROR, shown(what)));
                    }
                    if !matches!(ty.ty, Type::Int2 | Type::Int4 | Type::Int8) {
                        return Err(Error::new(
                            SqlState::INVALID_PARAMETER_VALUE,
                            "identity column type must be smallint, integer, or bigint",
                        ));
                    }
                    sequence = Some(Sequence {
                        ty: ty.ty,
                        identity: Some(match generated_as {
                            GeneratedAs::ByDefault => Identity::ByDefault,
                            _ => Identity::Always,
                        }),
                        options: sequence_options.as_deref().unwrap_or(&[]),
                    });
                    column.not_null = true;
                }
                ColumnOption::Collation(c) => self.check_collation(c)?,
                other => {
                    return Err(Error::unsupported(format!("column option {other}")));
                }
            }
        }
        if let Some(e) = default {
            column.default = Some(self.default_text(&column, e)?);
        }
        let at = def.columns.len();
        push_column(def, column)?;
        if let Some(s) = sequence {
            let text = self.column_sequence(def, at, s.ty, s.options)?;
            def.columns[at].default = Some(text);
            def.columns[at].identity = s.identity;
        }
        Ok(())
    }

    /// The type of a column: 42P16 for one that no row can hold.
    pub(super) fn storable(&self, dt: &DataType, column: &str) -> Result<ColumnType> {
        let text = dt.to_string();
        let ty = crate::catalog::user_types::type_named(&self.schema, self.ctx.search_path, &text)?;
        self.may_use_type(ty.ty)?;
        let pseudo = |name: &str| {
            let what = format!("column \"{column}\" has pseudo-type {name}");
            Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, what))
        };
        match ty.ty {
            Type::Void | Type::Record | Type::Unknown => pseudo(ty.ty.typname()),
            Type::PgNodeTree | Type::AclItem | Type::AclItemArray => Err(Error::unsupported(
                format!("a column of type {}", ty.ty.typname()),
            )),
            _ => Ok(ty),
        }
    }

    fn check_collation(&self, name: &ObjectName) -> Result<()> {
        let (_, name) = self.split(name)?;
        match name.as_str() {
            "default" | "C" | "POSIX" | "ucs_basic" => Ok(()),
            _ => Err(Error::unsupported(format!("collation \"{name}\""))),
        }
    }

    /// The text of a DEFAULT, bound once to see that it can be. `nextval('s')` keeps the sequence that `s` means now.
    pub(super) fn default_text(&mut self, column: &Column, e: &Expr) -> Result<String> {
        if column.generated {
            let what = "both default and generation expression specified for column";
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("{what} \"{}\"", column.name),
            ));
        }
        let text = super::expr_text::pinned(self, e)?;
        let e = super::expr_text::parse(&text)?;
        let (schema, path) = (&self.schema, self.ctx.search_path);
        self.ctx.analyzer.default(schema, path, column, &e)?;
        Ok(text)
    }
}

/// Adds a hidden column to the table: its place.
pub(super) fn push_hidden(def: &mut TableDef, column: Column) -> Result<base::ColumnIdx> {
    if def.columns.len() >= base::row::MAX_COLUMNS {
        return Err(Error::new(
            SqlState::TOO_MANY_COLUMNS,
            "the table has no room for the hidden column of an index",
        ));
    }
    def.columns.push(column);
    Ok((def.columns.len() - 1) as base::ColumnIdx)
}

/// 42701 for the name of a system column.
pub(super) fn no_system_column(name: &str) -> Result<()> {
    if !SYSTEM_COLUMNS.contains(&name) {
        return Ok(());
    }
    let what = format!("column name \"{name}\" conflicts with a system column name");
    Err(Error::new(SqlState::DUPLICATE_COLUMN, what))
}

/// Appends the column: 42701, 54011.
pub(super) fn push_column(def: &mut TableDef, column: Column) -> Result<()> {
    no_system_column(&column.name)?;
    if def
        .columns
        .iter()
        .any(|c| !c.dropped && c.name == column.name)
    {
        return Err(Error::new(
            SqlState::DUPLICATE_COLUMN,
            format!("column \"{}\" specified more than once", column.name),
        ));
    }
    if def.columns.len() >= MAX_COLUMNS {
        return Err(Error::new(
            SqlState::TOO_MANY_COLUMNS,
            format!("tables can have at most {MAX_COLUMNS} columns"),
        ));
    }
    def.columns.push(column);
    Ok(())
}

pub(super) fn plain_column(name: String, ty: ColumnType) -> Column {
    Column::new(name, ty)
}

fn index_column(name: &Ident) -> sqlparser::ast::IndexColumn {
    sqlparser::ast::IndexColumn {
        column: sqlparser::ast::OrderByExpr {
            expr: Expr::Identifier(name.clone()),
            options: sqlparser::ast::OrderByOptions {
                sort: None,
                nulls_first: None,
            },
            with_fill: None,
        },
        operator_class: None,
    }
}

/// Storage parameters are accepted when PostgreSQL knows them, and mean nothing here; 22023 for others.
pub(super) fn check_storage_parameters(options: &[SqlOption]) -> Result<()> {
    const KNOWN: [&str; 6] = [
        "fillfactor",
        "parallel_workers",
        "user_catalog_table",
        "vacuum_truncate",
        "vacuum_index_cleanup",
        "toast_tuple_target",
    ];
    for o in options {
        let (name, value) = match o {
            SqlOption::KeyValue { key, value } => (key.value.to_lowercase(), value.to_string()),
            SqlOption::Ident(i) => (i.value.to_lowercase(), "true".into()),
            other => return Err(Error::unsupported(format!("storage parameter {other}"))),
        };
        if name == "oids" {
            if matches!(
                value.to_lowercase().as_str(),
                "false" | "off" | "0" | "'false'"
            ) {
                continue;
            }
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "tables declared WITH OIDS are not supported",
            ));
        }
        if name == "fillfactor" {
            let n: i64 = value.trim_matches('\'').parse().unwrap_or(0);
            if !(10..=100).contains(&n) {
                return Err(Error::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("value {value} out of bounds for option \"fillfactor\""),
                )
                .detail("Valid values are between \"10\" and \"100\"."));
            }
        }
        if !KNOWN.contains(&name.as_str()) && !name.starts_with("autovacuum_") {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("unrecognized parameter \"{name}\""),
            ));
        }
    }
    Ok(())
}
