//! ALTER TABLE … ALTER COLUMN: NOT NULL, DEFAULT, identity, type.
//!
//! A change of type keeps the rows where every stored value is, byte for byte, the same value of the new type; else they are
//! written anew with PostgreSQL's assignment casts ([`super::fill`]).
//!
//! With USING the rows are always written anew: the expression sees the row as it was before the statement.
//!
//! Left out on purpose: columns of foreign keys (0A000), several actions of one statement of which one has USING.

use super::alter::{next_row_version, no_column};
use super::constraints::place;
use super::depend::Node;
use super::expr_text;
use super::fill::{Fill, With};
use super::generated;
use super::sequence::Options;
use super::work::Work;
use crate::catalog;
use crate::types::cast::CastKind;
use crate::types::typename::{cast_name, format_type};
use base::modifier::numeric_modifier;
use base::schema::{Column, Identity, Object, TableDef};
use base::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast::{
    self, AlterColumnOperation, Expr, GeneratedAs, Ident, ObjectName, SequenceOptions,
};

impl Work<'_> {
    pub(super) fn alter_column(
        &mut self,
        mut def: TableDef,
        name: &str,
        op: &AlterColumnOperation,
    ) -> Result<()> {
        use AlterColumnOperation as O;
        let at = place(&def, name).ok_or_else(|| no_column(&def, name))?;
        let is_identity = |def: &TableDef| {
            Error::new(
                SqlState::SYNTAX_ERROR,
                format!(
                    "column \"{name}\" of relation \"{}\" is an identity column",
                    def.name
                ),
            )
        };
        let identity = def.columns[at as usize].identity.is_some();
        match op {
            O::SetNotNull => def.columns[at as usize].not_null = true,
            O::DropNotNull => {
                if identity {
                    return Err(is_identity(&def));
                }
                let primary = def.indexes.iter().find(|i| i.is_primary_key());
                if primary.is_some_and(|i| i.columns.iter().any(|k| k.column == at)) {
                    return Err(Error::new(
                        SqlState::INVALID_TABLE_DEFINITION,
                        format!("column \"{name}\" is in a primary key"),
                    ));
                }
                def.columns[at as usize].not_null = false;
            }
            O::SetDefault { .. } | O::DropDefault if def.columns[at as usize].generated => {
                let what = format!(
                    "column \"{name}\" of relation \"{}\" is a generated column",
                    def.name
                );
                return Err(Error::new(SqlState::SYNTAX_ERROR, what));
            }
            O::SetDefault { value } => {
                if identity {
                    return Err(is_identity(&def));
                }
                let text = self.default_text(&def.columns[at as usize].clone(), value)?;
                let null = text.eq_ignore_ascii_case("null");
                def.columns[at as usize].default = (!null).then_some(text);
            }
            O::DropDefault => {
                if identity {
                    return Err(is_identity(&def)
                        .hint("Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead."));
                }
                def.columns[at as usize].default = None;
            }
            O::SetDataType {
                data_type, using, ..
            } => {
                let (old, new) = (
                    def.columns[at as usize].ty(),
                    self.storable(data_type, name)?,
                );
                if let Some(v) = self.views_of(def.id).first() {
                    return Err(Error::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "cannot alter type of a column used by a view or rule",
                    )
                    .detail(format!(
                        "{} depends on column \"{name}\"",
                        self.describe(Node::Relation(*v))
                    )));
                }
                self.change_type(&mut def, at, (old, new), using.as_ref())?;
                def.columns[at as usize].domain = self.domain_of(data_type)?.map(|d| d.0);
            }
            O::AddGenerated {
                generated_as,
                sequence_options,
            } => self.add_identity(
                &mut def,
                at as usize,
                generated_as.as_ref(),
                sequence_options.as_deref().unwrap_or(&[]),
            )?,
        }
        self.put(Object::Table(def));
        Ok(())
    }

    /// Gives a column another type. Rows are written anew where their bytes change.
    fn change_type(
        &mut self,
        def: &mut TableDef,
        at: base::ColumnIdx,
        (old, new): (ColumnType, ColumnType),
        using: Option<&Expr>,
    ) -> Result<()> {
        let name = def.columns[at as usize].name.clone();
        generated::may_change_type(def, at, using.is_some())?;
        let before = def.clone();
        let shown = |t: ColumnType| format_type(t.ty, t.typmod);
        let castable = matches!(
            crate::types::cast::find(old.ty, new.ty),
            Some(CastKind::Implicit | CastKind::Assignment)
        );
        if old.ty != new.ty && !castable && using.is_none() {
            return Err(Error::new(
                SqlState::DATATYPE_MISMATCH,
                format!(
                    "column \"{name}\" cannot be cast automatically to type {}",
                    shown(new)
                ),
            )
            .hint(format!(
                "You might need to specify \"USING {}::{}\".",
                expr_text::quote_ident(&name),
                shown(new)
            )));
        }
        let referenced = |f: &base::schema::ForeignKey| f.columns.contains(&at);
        let referencing = |t: &base::schema::Table| {
            let mut keys = t.def.foreign_keys.iter();
            keys.any(|f| f.ref_table == def.id && f.ref_columns.contains(&at))
        };
        let in_key =
            def.foreign_keys.iter().any(referenced) || self.schema.tables().any(|t| referencing(t));
        let column = &mut def.columns[at as usize];
        retype(column, new, castable);
        if column.identity.is_some() && !matches!(new.ty, Type::Int2 | Type::Int4 | Type::Int8) {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "identity column type must be smallint, integer, or bigint",
            ));
        }
        if column.identity.is_some() && new.ty != old.ty {
            let options = Options {
                ty: Some(new.ty),
                ..Options::default()
            };
            for s in self.owned_sequences(|t, c| (t, c) == (def.id, at)) {
                self.change_sequence(s, &options)?;
            }
        }
        next_row_version(def)?;
        if same_bytes(old, new) && using.is_none() {
            return Ok(());
        }
        if in_key {
            return Err(Error::unsupported(format!(
                "changing a column of a foreign key from type {} to {}",
                shown(old),
                shown(new)
            )));
        }
        for i in &def.indexes {
            if i.columns.iter().any(|k| k.column == at) {
                super::constraints::indexable(def, at)?;
            }
        }
        def.columns[at as usize].missing = None;
        let (schema, path) = (&self.schema, self.ctx.search_path);
        if let Some(text) = &def.columns[at as usize].default {
            let e = expr_text::parse(text)?;
            let column = &def.columns[at as usize];
            match column.generated {
                true => self.ctx.analyzer.generated(schema, path, def, column, &e)?,
                false => self.ctx.analyzer.default(schema, path, column, &e)?,
            }
        }
        for c in &def.checks {
            let e = expr_text::parse(&c.expr)?;
            self.ctx.analyzer.check(schema, path, def, &e)?;
        }
        let with = match using {
            None if def.columns[at as usize].generated => With::Computed,
            None => With::Cast(old, new),
            Some(e) => {
                // Bound now, so that what is wrong with it is said of an empty table, too.
                let column = (&before, &def.columns[at as usize]);
                self.ctx.analyzer.transform(schema, path, column, e, &[])?;
                With::Using(e.clone(), Box::new(before))
            }
        };
        self.fills.push(Fill {
            table: def.id,
            column: at,
            with,
        });
        Ok(())
    }

    fn add_identity(
        &mut self,
        def: &mut TableDef,
        at: usize,
        generated: Option<&GeneratedAs>,
        options: &[SequenceOptions],
    ) -> Result<()> {
        let column = &def.columns[at];
        let of = format!("column \"{}\" of relation \"{}\"", column.name, def.name);
        let refuse = |what: &str| {
            let code = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
            Err(Error::new(code, format!("{of} {what}")))
        };
        let ty = column.ty().ty;
        if !matches!(ty, Type::Int2 | Type::Int4 | Type::Int8) {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "identity column type must be smallint, integer, or bigint",
            ));
        }
        if !column.not_null {
            return refuse("must be declared NOT NULL before identity can be added");
        }
        if column.identity.is_some() {
            return refuse("is already an identity column");
        }
        if column.default.is_some() {
            return refuse("already has a default value");
        }
        let text = self.column_sequence(def, at, ty, options)?;
        def.columns[at].default = Some(text);
        def.columns[at].identity = Some(match generated {
            Some(GeneratedAs::ByDefault) => Identity::ByDefault,
            _ => Identity::Always,
        });
        Ok(())
    }

    /// ALTER COLUMN … SET GENERATED, SET of its sequence's options, RESTART.
    pub(super) fn alter_identity(
        &mut self,
        table: &ObjectName,
        column: &Ident,
        always: Option<bool>,
        options: &Options,
    ) -> Result<()> {
        let mut def = self.own_table(table)?.def.clone();
        let name = catalog::fold(column);
        let at = place(&def, &name).ok_or_else(|| no_column(&def, &name))?;
        let id = def.id;
        let identity = &mut def.columns[at as usize].identity;
        match always {
            _ if identity.is_none() => {
                let what = format!(
                    "column \"{name}\" of relation \"{}\" is not an identity column",
                    def.name
                );
                return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what));
            }
            Some(true) => *identity = Some(Identity::Always),
            Some(false) => *identity = Some(Identity::ByDefault),
            None => {}
        }
        if always.is_some() {
            self.put(Object::Table(def));
        }
        if *options != Options::default() {
            for s in self.owned_sequences(|t, c| (t, c) == (id, at)) {
                self.change_sequence(s, options)?;
            }
        }
        Ok(())
    }

    /// ALTER COLUMN … DROP IDENTITY.
    pub(super) fn drop_identity(
        &mut self,
        table: &ObjectName,
        column: &Ident,
        if_exists: bool,
    ) -> Result<String> {
        let mut def = self.own_table(table)?.def.clone();
        let name = catalog::fold(column);
        let at = place(&def, &name).ok_or_else(|| no_column(&def, &name))?;
        if def.columns[at as usize].identity.is_none() {
            let what = format!(
                "column \"{name}\" of relation \"{}\" is not an identity column",
                def.name
            );
            if !if_exists {
                return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what));
            }
            self.notice(SqlState([b'0'; 5]), format!("{what}, skipping"));
            return Ok("ALTER TABLE".into());
        }
        def.columns[at as usize].identity = None;
        def.columns[at as usize].default = None;
        let id = def.id;
        self.put(Object::Table(def));
        for s in self.owned_sequences(|t, c| (t, c) == (id, at)) {
            self.drop_object(s);
        }
        Ok("ALTER TABLE".into())
    }
}

/// Gives the column the type. A default that is a plain string keeps the value that it has by the old type, where that casts to the new one.
fn retype(column: &mut Column, new: ColumnType, castable: bool) {
    let old = column.ty().ty;
    let settles = castable
        && !matches!(old, t if t == new.ty || t == Type::Citext)
        && old.oid() < base::id::FIRST_USER_OID;
    if let Some(text) = column.default.as_mut().filter(|_| settles)
        && let Ok(Expr::Value(v)) = expr_text::parse(text)
        && matches!(
            v.value,
            ast::Value::SingleQuotedString(_) | ast::Value::EscapedStringLiteral(_)
        )
    {
        text.push_str(&format!("::{}", cast_name(old)));
    }
    column.set_type(new);
}

/// Whether every stored value of the old type is, byte for byte, the same value of the new type.
fn same_bytes(old: ColumnType, new: ColumnType) -> bool {
    let text = |t| matches!(t, Type::Text | Type::Varchar);
    if old == new {
        return true;
    }
    if text(old.ty) && text(new.ty) {
        return new.typmod < 0 || old.typmod >= 0 && new.typmod >= old.typmod;
    }
    if old.ty != new.ty {
        return false;
    }
    match (numeric_modifier(old.typmod), numeric_modifier(new.typmod)) {
        _ if new.typmod < 0 => old.ty != Type::Bpchar,
        _ if old.ty == Type::VarBit => old.typmod > 0 && new.typmod >= old.typmod,
        (Some((p, s)), Some((q, t))) if old.ty == Type::Numeric => s == t && q >= p,
        _ if matches!(
            old.ty,
            Type::Time | Type::TimeTz | Type::Timestamp | Type::TimestampTz
        ) =>
        {
            old.typmod >= 0 && new.typmod >= old.typmod || new.typmod == 6
        }
        _ => false,
    }
}
