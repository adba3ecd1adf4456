//! Constraints of tables, as CREATE TABLE and ALTER TABLE ADD make them.
//!
//! Left out on purpose: EXCLUDE, NO INHERIT, MATCH FULL over several columns (0A000).

use super::expr_text;
use super::names;
use super::work::Work;
use crate::catalog::Resolved;
use crate::types::typename::format_type;
use base::schema::{
    Check, Deferral, FkAction, ForeignKey, Index, IndexColumn, Relation, Table, TableDef, privilege,
};
use base::{ColumnIdx, ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast::{
    CheckConstraint, ConstraintCharacteristics, ConstraintReferenceMatchKind, ConstraintUsingIndex,
    DeferrableInitial, Expr, ForeignKeyConstraint, Ident, NullsDistinctOption, ReferentialAction,
    TableConstraint,
};
use std::sync::Arc;

/// A constraint that waits for the table's columns to be known; `column`: the one that it was written at.
pub(super) struct Pending {
    pub constraint: TableConstraint,
    pub column: Option<String>,
    /// ALTER TABLE … ADD … NOT VALID.
    pub not_valid: bool,
}

impl Pending {
    pub(super) fn new(constraint: TableConstraint, column: Option<String>) -> Pending {
        Pending {
            constraint,
            column,
            not_valid: false,
        }
    }
}

/// A PRIMARY KEY or UNIQUE to be made.
struct Key<'a> {
    name: Option<&'a Ident>,
    columns: &'a [sqlparser::ast::IndexColumn],
    include: &'a [Ident],
    primary: bool,
    nulls_not_distinct: bool,
    deferral: Deferral,
}

impl Work<'_> {
    /// Adds the constraints: CHECKs first, then keys, then foreign keys.
    pub(super) fn add_constraints(
        &mut self,
        def: &mut TableDef,
        pending: Vec<Pending>,
    ) -> Result<()> {
        use TableConstraint as C;
        for p in &pending {
            match &p.constraint {
                C::Check(c) => self.add_check(def, c, p)?,
                C::ForeignKey(_) => {}
                _ if p.not_valid => return Err(never_unchecked(&p.constraint)),
                C::PrimaryKey(_) | C::Unique(_) => {}
                C::PrimaryKeyUsingIndex(u) => self.use_index(def, u, true)?,
                C::UniqueUsingIndex(u) => self.use_index(def, u, false)?,
                C::Exclude(_) => return Err(Error::unsupported("an exclusion constraint")),
                other => return Err(Error::unsupported(format!("constraint {other}"))),
            }
        }
        // The primary key first: a UNIQUE over the same columns is then not made a second time.
        for primary in [true, false] {
            for p in &pending {
                match &p.constraint {
                    C::PrimaryKey(c) if primary => {
                        let key = Key {
                            name: c.name.as_ref(),
                            columns: &c.columns,
                            include: &c.include,
                            primary: true,
                            nulls_not_distinct: false,
                            deferral: deferral(c.characteristics.as_ref())?,
                        };
                        self.add_key(def, &key)?;
                    }
                    C::Unique(c) if !primary => {
                        let key = Key {
                            name: c.name.as_ref(),
                            columns: &c.columns,
                            include: &c.include,
                            primary: false,
                            nulls_not_distinct: matches!(
                                c.nulls_distinct,
                                NullsDistinctOption::NotDistinct
                            ),
                            deferral: deferral(c.characteristics.as_ref())?,
                        };
                        self.add_key(def, &key)?;
                    }
                    _ => {}
                }
            }
        }
        for p in &pending {
            if let C::ForeignKey(c) = &p.constraint {
                self.add_foreign_key(def, c, p.not_valid)?;
            }
        }
        super::generated::refuse_actions(def)
    }

    fn given_name(&mut self, def: &TableDef, name: &Ident) -> Result<String> {
        let name = self.name(name);
        if names::has_constraint(def, &name) {
            return Err(Error::new(
                SqlState::DUPLICATE_OBJECT,
                format!(
                    "constraint \"{name}\" for relation \"{}\" already exists",
                    def.name
                ),
            ));
        }
        Ok(name)
    }

    fn add_check(&mut self, def: &mut TableDef, c: &CheckConstraint, p: &Pending) -> Result<()> {
        let column = p.column.as_deref();
        if c.no_inherit || c.enforced == Some(false) {
            return Err(Error::unsupported("CHECK … NO INHERIT or NOT ENFORCED"));
        }
        let (schema, path) = (&self.schema, self.ctx.search_path);
        self.ctx.analyzer.check(schema, path, def, &c.expr)?;
        let expr = self.text_of(def, &c.expr)?;
        let name = match &c.name {
            Some(n) => self.given_name(def, n)?,
            None => {
                let all: Vec<&str> = live(def).map(|(_, c)| c.name.as_str()).collect();
                let used = expr_text::mentioned(&expr, &all);
                let second = match (column, used.as_slice()) {
                    (_, [one]) => one,
                    (Some(c), []) => c,
                    _ => "",
                };
                self.constraint_name(def, second, "check", false)
            }
        };
        let id = self.oid();
        def.checks.push(Check {
            id,
            name,
            expr,
            not_valid: p.not_valid,
        });
        Ok(())
    }

    /// ADD CONSTRAINT … USING INDEX: the index becomes that of a constraint. A primary key is made anew, because rows are kept under it.
    fn use_index(
        &mut self,
        def: &mut TableDef,
        u: &ConstraintUsingIndex,
        primary: bool,
    ) -> Result<()> {
        let deferral = deferral(u.characteristics.as_ref())?;
        let index = crate::catalog::fold(&u.index_name);
        let wrong = |what: &str| {
            let what = format!("{what}: index \"{index}\" of table \"{}\"", def.name);
            Err(Error::new(SqlState::WRONG_OBJECT_TYPE, what))
        };
        let Some(at) = def.indexes.iter().position(|i| i.name == index) else {
            let what = format!("index \"{index}\" does not exist");
            return Err(Error::new(SqlState::UNDEFINED_OBJECT, what));
        };
        let found = &def.indexes[at];
        if found.constraint {
            let what = format!("index \"{index}\" is already associated with a constraint");
            let code = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
            return Err(Error::new(code, what));
        }
        if !found.unique {
            return wrong("not a unique index");
        }
        if found.predicate.is_some() {
            return wrong("a partial index");
        }
        let expression = |c: &IndexColumn| def.columns[c.column as usize].is_hidden();
        if found.columns.iter().any(expression) {
            return wrong("an index over expressions");
        }
        if found.columns.iter().any(|c| c.desc || c.nulls_first) {
            return wrong("a column does not have default sorting behavior");
        }
        let name = match &u.name {
            Some(n) => self.given_name(def, n)?,
            None => index.clone(),
        };
        if name != index {
            self.must_be_free(def.namespace, &name)?;
            let what = "ALTER TABLE / ADD CONSTRAINT USING INDEX will rename index";
            let ok = SqlState([b'0'; 5]);
            self.notice(ok, format!("{what} \"{index}\" to \"{name}\""));
        }
        if primary && def.indexes.iter().any(Index::is_primary_key) {
            let what = format!(
                "multiple primary keys for table \"{}\" are not allowed",
                def.name
            );
            return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, what));
        }
        let constraint_oid = self.oid();
        if primary {
            for c in def.indexes[at].columns.clone() {
                def.columns[c.column as usize].not_null = true;
            }
        }
        let late = !deferral.is_never();
        if primary && !late {
            def.indexes[at].id = self.oid();
            def.rewrite_of = Some(def.storage);
            def.storage = self.oid();
        }
        let index = &mut def.indexes[at];
        (index.name, index.constraint_oid) = (name, constraint_oid);
        (index.constraint, index.deferral) = (true, deferral);
        (index.primary, index.late_primary) = (primary && !late, primary && late);
        Ok(())
    }

    fn add_key(&mut self, def: &mut TableDef, key: &Key<'_>) -> Result<()> {
        if key.primary && def.indexes.iter().any(Index::is_primary_key) {
            return Err(Error::new(
                SqlState::INVALID_TABLE_DEFINITION,
                format!(
                    "multiple primary keys for table \"{}\" are not allowed",
                    def.name
                ),
            ));
        }
        let mut columns: Vec<IndexColumn> = vec![];
        for c in key.columns {
            let Expr::Identifier(name) = &c.column.expr else {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    format!("syntax error at or near \"{}\"", c.column.expr),
                ));
            };
            let name = crate::catalog::fold(name);
            let at = place(def, &name).ok_or_else(|| {
                Error::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{name}\" named in key does not exist"),
                )
            })?;
            indexable(def, at)?;
            if columns.iter().any(|k| k.column == at) {
                let kind = if key.primary { "primary key" } else { "unique" };
                return Err(Error::new(
                    SqlState::DUPLICATE_COLUMN,
                    format!("column \"{name}\" appears twice in {kind} constraint"),
                ));
            }
            columns.push(IndexColumn {
                column: at,
                desc: false,
                nulls_first: false,
            });
        }
        let fresh = self.schema.table(def.id).is_none();
        let include = included(def, key.include)?;
        let same = |i: &Index| {
            let nulls = i.nulls_not_distinct == key.nulls_not_distinct;
            i.columns == columns && i.include == include && nulls && i.deferral == key.deferral
        };
        if fresh && def.indexes.iter().any(|i| i.constraint && same(i)) {
            return Ok(());
        }
        let name = match key.name {
            Some(n) => {
                let n = self.given_name(def, n)?;
                if n == def.name {
                    return Err(Error::new(
                        SqlState::DUPLICATE_TABLE,
                        format!("relation \"{n}\" already exists"),
                    ));
                }
                self.must_be_free(def.namespace, &n)?;
                n
            }
            None if key.primary => self.constraint_name(def, "", "pkey", true),
            None => {
                let second = written_names(def, &columns, &include);
                self.constraint_name(def, &second, "key", true)
            }
        };
        if key.primary {
            for c in &columns {
                def.columns[c.column as usize].not_null = true;
            }
        }
        let (id, constraint_oid) = (self.oid(), self.oid());
        let primary = key.primary && key.deferral.is_never();
        let index = Index {
            id,
            name,
            columns,
            unique: true,
            primary,
            constraint: true,
            constraint_oid,
            nulls_not_distinct: key.nulls_not_distinct,
            predicate: None,
            include,
            deferral: key.deferral,
            late_primary: key.primary && !primary,
        };
        if primary && !fresh {
            // Rows are kept under their primary key: they move to new storage.
            def.rewrite_of = Some(def.storage);
            def.storage = self.oid();
        }
        def.indexes.push(index);
        Ok(())
    }

    /// 42501 unless the role may reference these columns of a table.
    fn may_reference(&self, table: &Arc<Table>, columns: &[ColumnIdx]) -> Result<()> {
        let (role, relation) = (self.ctx.role, Relation::Table(table.clone()));
        let right = privilege::REFERENCES;
        super::privileges::check_each_column(&self.schema, role, &relation, columns, right)
    }

    /// 42P16 where one of two tables is temporary and the other is not.
    fn same_persistence(&self, table: base::Oid, referenced: base::Oid) -> Result<()> {
        let is_own = |n: base::Oid| self.schema.temporary() == Some(n);
        if is_own(table) == is_own(referenced) {
            return Ok(());
        }
        let kind = match is_own(table) {
            true => "temporary",
            false => "permanent",
        };
        Err(Error::new(
            SqlState::INVALID_TABLE_DEFINITION,
            format!("constraints on {kind} tables may reference only {kind} tables"),
        ))
    }

    fn add_foreign_key(
        &mut self,
        def: &mut TableDef,
        c: &ForeignKeyConstraint,
        not_valid: bool,
    ) -> Result<()> {
        let deferral = deferral(c.characteristics.as_ref())?;
        match c.match_kind {
            Some(ConstraintReferenceMatchKind::Full) if c.columns.len() > 1 => {
                return Err(Error::unsupported("MATCH FULL over several columns"));
            }
            Some(ConstraintReferenceMatchKind::Partial) => {
                return Err(Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "MATCH PARTIAL not yet implemented",
                ));
            }
            _ => {}
        }
        let own = {
            let (ns, name) = self.split(&c.foreign_table)?;
            let here = self
                .schema
                .namespace(def.namespace)
                .map(|n| n.name.as_str());
            let same_schema = match ns.as_deref() {
                Some(n) => Some(n) == here,
                None => self
                    .find(&c.foreign_table)?
                    .is_none_or(|r| r.oid() == def.id),
            };
            name == def.name && same_schema
        };
        let target = if own {
            None
        } else {
            match self.resolve(&c.foreign_table)? {
                Resolved::Relation(Relation::Table(t)) => Some(t),
                other => {
                    return Err(Error::new(
                        SqlState::WRONG_OBJECT_TYPE,
                        format!("referenced relation \"{}\" is not a table", other.name()),
                    ));
                }
            }
        };
        let referenced: &TableDef = match &target {
            Some(t) => &t.def,
            None => def,
        };
        let columns = fk_columns(def, &c.columns)?;
        let ref_columns = if c.referred_columns.is_empty() {
            let primary = primary_of(referenced)?;
            primary.columns.iter().map(|c| c.column).collect()
        } else {
            fk_columns(referenced, &c.referred_columns)?
        };
        if let Some(t) = &target {
            self.may_reference(t, &ref_columns)?;
        }
        if columns.len() != ref_columns.len() {
            return Err(Error::new(
                SqlState::INVALID_FOREIGN_KEY,
                "number of referencing and referenced columns for foreign key disagree",
            ));
        }
        let index = unique_over(referenced, &ref_columns)?;
        // In the order of the index, which is probed.
        let mut pairs: Vec<(ColumnIdx, ColumnIdx)> = columns.into_iter().zip(ref_columns).collect();
        pairs.sort_by_key(|(_, r)| index.columns.iter().position(|k| k.column == *r));
        let name = match &c.name {
            Some(n) => self.given_name(def, n)?,
            None => {
                let parts = pairs
                    .iter()
                    .map(|(c, _)| def.columns[*c as usize].name.as_str());
                self.constraint_name(def, &names::join(parts), "fkey", false)
            }
        };
        for (from, to) in &pairs {
            let (from, to) = (
                &def.columns[*from as usize],
                &referenced.columns[*to as usize],
            );
            if !fk_compatible(from.ty(), to.ty()) {
                let shown = |t: ColumnType| format_type(t.ty, t.typmod);
                return Err(Error::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!("foreign key constraint \"{name}\" cannot be implemented"),
                )
                .detail(format!(
                    "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                    from.name,
                    to.name,
                    shown(from.ty()),
                    shown(to.ty())
                )));
            }
        }
        self.same_persistence(def.namespace, referenced.namespace)?;
        let (ref_table, ref_index, id) = (referenced.id, index.id, self.oid());
        def.foreign_keys.push(ForeignKey {
            id,
            name,
            columns: pairs.iter().map(|p| p.0).collect(),
            ref_table,
            ref_index,
            ref_columns: pairs.iter().map(|p| p.1).collect(),
            on_delete: action(c.on_delete),
            on_update: action(c.on_update),
            deferral,
            not_valid,
        });
        Ok(())
    }
}

/// 55000: what a key references has to be unique at all times.
fn late_target(kind: &str, referenced: &TableDef) -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!(
            "cannot use a deferrable {kind} for referenced table \"{}\"",
            referenced.name
        ),
    )
}

/// The primary key that a foreign key references: 42704 when there is none, 55000 when it is deferrable.
fn primary_of(referenced: &TableDef) -> Result<&Index> {
    let mut keys = referenced.indexes.iter().filter(|i| i.is_primary_key());
    match keys.next() {
        Some(late) if late.late_primary => Err(late_target("primary key", referenced)),
        Some(primary) => Ok(primary),
        None => Err(Error::new(
            SqlState::UNDEFINED_OBJECT,
            format!(
                "there is no primary key for referenced table \"{}\"",
                referenced.name
            ),
        )),
    }
}

/// The unique index over exactly these columns: 42830 when there is none, 55000 when it is of a deferrable constraint.
fn unique_over<'t>(def: &'t TableDef, columns: &[ColumnIdx]) -> Result<&'t Index> {
    let covers = |i: &&Index| {
        i.unique
            && i.columns.len() == columns.len()
            && i.columns.iter().all(|k| columns.contains(&k.column))
            // An index may name a column twice.
            && columns.iter().all(|c| i.columns.iter().any(|k| k.column == *c))
    };
    let at_once = |i: &&Index| covers(i) && i.is_immediate();
    if let Some(found) = def.indexes.iter().find(at_once) {
        return Ok(found);
    }
    Err(match def.indexes.iter().any(|i| covers(&i)) {
        true => late_target("unique constraint", def),
        false => Error::new(
            SqlState::INVALID_FOREIGN_KEY,
            format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                def.name
            ),
        ),
    })
}

/// NOT VALID of a constraint that an index keeps.
fn never_unchecked(c: &TableConstraint) -> Error {
    use TableConstraint as C;
    let kind = match c {
        C::PrimaryKey(_) | C::PrimaryKeyUsingIndex(_) => "PRIMARY KEY",
        C::Exclude(_) => "EXCLUDE",
        _ => "UNIQUE",
    };
    Error::new(
        SqlState::FEATURE_NOT_SUPPORTED,
        format!("{kind} constraints cannot be marked NOT VALID"),
    )
}

/// Columns that are not dropped, with their places.
pub(super) fn live(def: &TableDef) -> impl Iterator<Item = (ColumnIdx, &base::schema::Column)> {
    let numbered = def.columns.iter().enumerate();
    numbered
        .filter(|(_, c)| !c.dropped)
        .map(|(i, c)| (i as ColumnIdx, c))
}

/// The place of the column of this name.
pub(super) fn place(def: &TableDef, name: &str) -> Option<ColumnIdx> {
    live(def).find(|(_, c)| c.name == name).map(|(i, _)| i)
}

/// The part of an index's name that says what it is over.
pub(super) fn written_names(def: &TableDef, key: &[IndexColumn], include: &[ColumnIdx]) -> String {
    let all = key.iter().map(|k| k.column).chain(include.iter().copied());
    let all: Vec<String> = all
        .map(|c| expr_text::key_name(&def.columns[c as usize]))
        .collect();
    names::join(all.iter().map(String::as_str))
}

/// The places of the columns of INCLUDE.
pub(super) fn included(def: &TableDef, names: &[Ident]) -> Result<Vec<ColumnIdx>> {
    let names = names.iter().map(crate::catalog::fold);
    names
        .map(|n| place(def, &n).ok_or_else(|| no_column(&n)))
        .collect()
}

/// 42703.
pub(super) fn no_column(name: &str) -> Error {
    Error::new(
        SqlState::UNDEFINED_COLUMN,
        format!("column \"{name}\" does not exist"),
    )
}

/// 42704 for a type whose values have no order.
pub(super) fn indexable(def: &TableDef, at: ColumnIdx) -> Result<()> {
    let ty = def.columns[at as usize].ty();
    let ordered = !matches!(ty.ty, Type::Json);
    let composite = ty.ty.composite().is_some();
    if ordered && ty.ty != Type::Jsonb && ty.ty.element().is_none() && !composite {
        return Ok(());
    }
    let name = format_type(ty.ty, -1);
    if ordered {
        return Err(Error::unsupported(format!("an index over type {name}")));
    }
    Err(Error::new(
        SqlState::UNDEFINED_OBJECT,
        format!("data type {name} has no default operator class for access method \"btree\""),
    )
    .hint("You must specify an operator class for the index or define a default operator class for the data type."))
}

fn fk_columns(def: &TableDef, names: &[Ident]) -> Result<Vec<ColumnIdx>> {
    names
        .iter()
        .map(|n| {
            let n = crate::catalog::fold(n);
            place(def, &n).ok_or_else(|| {
                Error::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{n}\" referenced in foreign key constraint does not exist"),
                )
            })
        })
        .collect()
}

/// Whether values of the referencing type are looked up in a key of the referenced type: the same type, a narrower or wider
/// integer, or two types of character strings that compare alike.
fn fk_compatible(from: ColumnType, to: ColumnType) -> bool {
    let int = |t| matches!(t, Type::Int2 | Type::Int4 | Type::Int8);
    let text = |t| matches!(t, Type::Text | Type::Varchar);
    from.ty == to.ty || int(from.ty) && int(to.ty) || text(from.ty) && text(to.ty)
}

fn action(a: Option<ReferentialAction>) -> FkAction {
    match a {
        None | Some(ReferentialAction::NoAction) => FkAction::NoAction,
        Some(ReferentialAction::Restrict) => FkAction::Restrict,
        Some(ReferentialAction::Cascade) => FkAction::Cascade,
        Some(ReferentialAction::SetNull) => FkAction::SetNull,
        Some(ReferentialAction::SetDefault) => FkAction::SetDefault,
    }
}

/// When a key is looked at.
fn deferral(c: Option<&ConstraintCharacteristics>) -> Result<Deferral> {
    let Some(c) = c else {
        return Ok(Deferral::Never);
    };
    if c.enforced == Some(false) {
        return Err(Error::unsupported("a constraint NOT ENFORCED"));
    }
    let deferred = matches!(c.initially, Some(DeferrableInitial::Deferred));
    match (c.deferrable, deferred) {
        (Some(false), true) => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "constraint declared INITIALLY DEFERRED must be DEFERRABLE",
        )),
        (_, true) => Ok(Deferral::Deferred),
        (Some(true), false) => Ok(Deferral::Immediate),
        _ => Ok(Deferral::Never),
    }
}
