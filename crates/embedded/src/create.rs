//! Tables without SQL: the builder, and the schema changes that it stands for.
//!
//! What it makes is what CREATE TABLE would make: the same names for constraints (`t_pkey`, `t_a_b_key`, `t_a_fkey`), in schema
//! `public`, through the log, visible to SQL.

use base::schema::*;
use base::split::{Split, Units};
use base::split_records::{drop_records, settle_records};
use base::{ColumnType, Error, Oid, Result, SqlState};
use txn::{Stop, Txn, TxnOptions};

use super::database::Database;

impl Database {
    /// Makes a table. 42P07 when the name is taken; other errors as CREATE TABLE gives them.
    pub fn create_table(&self, table: TableBuilder) -> Result<()> {
        create(self, &table)
    }

    /// Drops a table and its rows. 42P01 when there is none; 2BP01 when a foreign key references it.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        drop_table(self, name)
    }

    /// Whether there is a table of this name.
    pub fn has_table(&self, name: &str) -> bool {
        let catalog = self.manager().catalog();
        find(&catalog.schema, name).is_some()
    }
}

/// A table to be made.
#[derive(Clone, Debug)]
pub struct TableBuilder {
    name: String,
    columns: Vec<(String, ColumnType, bool)>,
    primary: Vec<String>,
    /// (name or none, columns, unique)
    indexes: Vec<(Option<String>, Vec<String>, bool)>,
    references: Vec<Reference>,
    /// (column, fewest and most further records)
    splits: Vec<(String, u16, u16)>,
}

#[derive(Clone, Debug)]
struct Reference {
    columns: Vec<String>,
    table: String,
    /// Empty: the primary key.
    ref_columns: Vec<String>,
    on_delete: FkAction,
    on_update: FkAction,
}

fn owned<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Vec<String> {
    names.into_iter().map(Into::into).collect()
}

impl TableBuilder {
    /// A table without columns yet.
    pub fn new(name: impl Into<String>) -> TableBuilder {
        TableBuilder {
            name: name.into(),
            columns: Vec::new(),
            primary: Vec::new(),
            indexes: Vec::new(),
            references: Vec::new(),
            splits: Vec::new(),
        }
    }

    /// A column that is never NULL.
    pub fn column(mut self, name: impl Into<String>, ty: impl Into<ColumnType>) -> Self {
        self.columns.push((name.into(), ty.into(), true));
        self
    }

    /// A column that may be NULL (an `Option` in Rust).
    pub fn nullable(mut self, name: impl Into<String>, ty: impl Into<ColumnType>) -> Self {
        self.columns.push((name.into(), ty.into(), false));
        self
    }

    /// The primary key. A table without one keeps its rows in the order of insertion.
    pub fn primary_key<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.primary = owned(columns);
        self
    }

    /// An index for scans.
    pub fn index<S: Into<String>>(
        mut self,
        name: impl Into<String>,
        columns: impl IntoIterator<Item = S>,
    ) -> Self {
        self.indexes
            .push((Some(name.into()), owned(columns), false));
        self
    }

    /// No two rows have the same values here (rows with a NULL are not compared). The index is called `table_columns_key`.
    pub fn unique<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.indexes.push((None, owned(columns), true));
        self
    }

    /// The column is split: what [`Table::add`](crate::Table::add) adds to it does not conflict (`docs/split-values.md`). It has to be NOT NULL, of a
    /// type with whole units, and in no key, index or foreign key: 0A000.
    pub fn split(self, column: impl Into<String>) -> Self {
        let split = Split::default();
        self.split_with(column, split.min, split.max)
    }

    /// The same with the fewest and the most further records of a value that has additions.
    pub fn split_with(mut self, column: impl Into<String>, min: u16, max: u16) -> Self {
        self.splits.push((column.into(), min, max));
        self
    }

    /// The columns reference the primary key of a table (which may be this one).
    pub fn references<S: Into<String>>(
        self,
        columns: impl IntoIterator<Item = S>,
        table: impl Into<String>,
    ) -> Self {
        self.references_with(columns, table, &[], FkAction::NoAction, FkAction::NoAction)
    }

    /// The columns reference a unique key of a table (no columns: the primary key), with actions.
    pub fn references_with<S: Into<String>>(
        mut self,
        columns: impl IntoIterator<Item = S>,
        table: impl Into<String>,
        ref_columns: &[&str],
        on_delete: FkAction,
        on_update: FkAction,
    ) -> Self {
        self.references.push(Reference {
            columns: owned(columns),
            table: table.into(),
            ref_columns: owned(ref_columns.iter().copied()),
            on_delete,
            on_update,
        });
        self
    }

    /// The columns' places; 42703 for a name that is not there.
    fn places(&self, names: &[String]) -> Result<Vec<u16>> {
        let place = |n: &String| {
            let at = self.columns.iter().position(|c| c.0 == *n);
            at.map(|i| i as u16).ok_or_else(|| no_column(n, &self.name))
        };
        names.iter().map(place).collect()
    }

    fn build(&self, txn: &mut Txn) -> Result<TableDef> {
        let invalid = |what: String| Error::new(SqlState::INVALID_TABLE_DEFINITION, what);
        for (i, c) in self.columns.iter().enumerate() {
            if self.columns[..i].iter().any(|o| o.0 == c.0) {
                let what = format!("column \"{}\" specified more than once", c.0);
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, what));
            }
        }
        if self.columns.len() > base::row::MAX_COLUMNS {
            let what = format!("tables can have at most {} columns", base::row::MAX_COLUMNS);
            return Err(Error::new(SqlState::TOO_MANY_COLUMNS, what));
        }
        let mut def = TableDef {
            id: txn.new_oid(),
            storage: txn.new_oid(),
            namespace: PUBLIC,
            name: self.name.clone(),
            owner: BOOTSTRAP_ROLE,
            row_version: 0,
            columns: Vec::new(),
            indexes: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            acl: Vec::new(),
            rewrite_of: None,
        };
        for (name, ty, not_null) in &self.columns {
            let mut column = Column::new(name.as_str(), *ty);
            column.not_null = *not_null || self.primary.contains(name);
            def.columns.push(column);
        }
        let key = (!self.primary.is_empty()).then(|| {
            let name = format!("{}_pkey", self.name);
            (name, &self.primary, true, true)
        });
        let others = self.indexes.iter().map(|(name, columns, unique)| {
            let made = || format!("{}_{}_key", self.name, columns.join("_"));
            (name.clone().unwrap_or_else(made), columns, *unique, false)
        });
        for (name, columns, unique, primary) in key.into_iter().chain(others) {
            if columns.is_empty() {
                return Err(invalid(format!("index \"{name}\" has no columns")));
            }
            let columns = self.places(columns)?;
            let column = |c: &u16| IndexColumn {
                column: *c,
                desc: false,
                nulls_first: false,
            };
            def.indexes.push(Index {
                id: txn.new_oid(),
                name,
                columns: columns.iter().map(column).collect(),
                unique,
                primary,
                constraint: unique,
                constraint_oid: if unique { txn.new_oid() } else { 0 },
                nulls_not_distinct: false,
                predicate: None,
                include: vec![],
                deferral: base::schema::Deferral::Never,
                late_primary: false,
            });
        }
        for r in &self.references {
            let made = self.foreign_key(txn, &def, r)?;
            def.foreign_keys.push(made);
        }
        for (name, min, max) in &self.splits {
            let at = self.places(std::slice::from_ref(name))?[0];
            let is_key = def
                .indexes
                .iter()
                .any(|i| i.columns.iter().any(|c| c.column == at))
                || def.foreign_keys.iter().any(|f| f.columns.contains(&at));
            let column = &mut def.columns[usize::from(at)];
            if is_key || !column.not_null || Units::of(column.ty()).is_none() {
                let what = format!("column \"{name}\" cannot be split");
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what));
            }
            column.split = Some(Split {
                min: *min,
                max: *max,
                ..Split::default()
            });
        }
        Ok(def)
    }

    fn foreign_key(&self, txn: &mut Txn, def: &TableDef, r: &Reference) -> Result<ForeignKey> {
        let name = format!("{}_{}_fkey", self.name, r.columns.join("_"));
        let catalog = txn.catalog();
        let parent = match r.table == self.name {
            true => def,
            false => {
                let id = find(&catalog.schema, &r.table).ok_or_else(|| no_table(&r.table))?;
                &catalog.schema.table(id).expect("found as a table").def
            }
        };
        let place = |n: &String| {
            let at = parent
                .columns
                .iter()
                .position(|c| !c.dropped && c.name == *n);
            at.map(|i| i as u16)
                .ok_or_else(|| no_column(n, &parent.name))
        };
        let wanted: Vec<u16> = r.ref_columns.iter().map(place).collect::<Result<_>>()?;
        let index = parent.indexes.iter().find(|i| match wanted.is_empty() {
            true => i.primary,
            false => {
                i.is_immediate()
                    && i.columns
                        .iter()
                        .map(|c| c.column)
                        .eq(wanted.iter().copied())
            }
        });
        let index = index.ok_or_else(|| {
            let what = format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                r.table
            );
            Error::new(SqlState::INVALID_FOREIGN_KEY, what)
        })?;
        let columns = self.places(&r.columns)?;
        let ref_columns: Vec<u16> = index.columns.iter().map(|c| c.column).collect();
        if columns.len() != ref_columns.len() {
            let what = "number of referencing and referenced columns for foreign key disagree";
            return Err(Error::new(SqlState::INVALID_FOREIGN_KEY, what));
        }
        for (c, rc) in columns.iter().zip(&ref_columns) {
            let (from, to) = (&def.columns[*c as usize], &parent.columns[*rc as usize]);
            if from.ty().ty != to.ty().ty {
                let what = format!("foreign key constraint \"{name}\" cannot be implemented");
                return Err(
                    Error::new(SqlState::DATATYPE_MISMATCH, what).detail(format!(
                        "Key columns \"{}\" and \"{}\" are of different types.",
                        from.name, to.name
                    )),
                );
            }
        }
        Ok(ForeignKey {
            id: txn.new_oid(),
            name,
            columns,
            ref_table: parent.id,
            ref_index: index.id,
            ref_columns,
            on_delete: r.on_delete,
            on_update: r.on_update,
            deferral: base::schema::Deferral::Never,
            not_valid: false,
        })
    }
}

/// The table of this name in `public`.
pub(super) fn find(schema: &Schema, name: &str) -> Option<Oid> {
    let id = schema.lookup(PUBLIC, name)?;
    schema.table(id).map(|t| t.def.id)
}

pub(super) fn no_table(name: &str) -> Error {
    Error::new(
        SqlState::UNDEFINED_TABLE,
        format!("relation \"{name}\" does not exist"),
    )
}

fn no_column(name: &str, table: &str) -> Error {
    let what = format!("column \"{name}\" of relation \"{table}\" does not exist");
    Error::new(SqlState::UNDEFINED_COLUMN, what)
}

/// Runs a schema change in a transaction of its own, which waits its turn.
fn change(db: &Database, f: impl Fn(&mut Txn) -> Result<Vec<Change>>) -> Result<()> {
    let mut txn = db.node().begin(TxnOptions::default(), false);
    loop {
        txn.begin_statement()?;
        let done = txn.lock_schema().and_then(|()| {
            let changes = f(&mut txn)?;
            txn.change_schema(changes)
        });
        match done {
            Ok(()) => break,
            Err(Stop::Restart) => txn.rollback_statement(),
            Err(Stop::Blocked) => {
                txn.rollback_statement();
                let wait = txn
                    .take_wait()
                    .expect("a blocked statement leaves what it waits for");
                futures::executor::block_on(wait);
            }
            Err(Stop::Error(e)) => return Err(e),
        }
    }
    // It has written no row.
    txn.end_statement().map_err(Stop::only_error)?;
    let position = db.node().commit(txn)?;
    futures::executor::block_on(db.node().published(position));
    Ok(())
}

fn create(db: &Database, table: &TableBuilder) -> Result<()> {
    change(db, |txn| {
        let mut def = table.build(txn)?;
        let catalog = txn.catalog();
        let indexes = def.indexes.iter().map(|i| &i.name);
        for (i, name) in [&def.name].into_iter().chain(indexes).enumerate() {
            let twice = i > 0
                && (def.indexes.iter().filter(|x| x.name == *name).count() > 1
                    || *name == def.name);
            if twice || catalog.schema.lookup(PUBLIC, name).is_some() {
                let what = format!("relation \"{name}\" already exists");
                return Err(Error::new(SqlState::DUPLICATE_TABLE, what));
            }
        }
        let mut changes = settle_records(&mut def, None, &mut || txn.new_oid());
        changes.push(Change::Put(Object::Table(def)));
        Ok(changes)
    })
}

fn drop_table(db: &Database, name: &str) -> Result<()> {
    change(db, |txn| {
        let catalog = txn.catalog();
        let id = find(&catalog.schema, name).ok_or_else(|| no_table(name))?;
        let table = catalog.schema.table(id).expect("found as a table");
        let others = catalog
            .schema
            .relations()
            .filter_map(|r| match r {
                Relation::View(v) if v.depends_on.contains(&id) => Some(v.name.clone()),
                _ => None,
            })
            .chain(
                table
                    .referenced_by
                    .iter()
                    .filter(|(t, _)| *t != id)
                    .filter_map(|(t, _)| catalog.schema.table(*t).map(|t| t.def.name.clone())),
            );
        if let Some(other) = others.into_iter().next() {
            let what = format!("cannot drop table {name} because other objects depend on it");
            return Err(Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, what)
                .detail(format!("{other} depends on table {name}.")));
        }
        let owned = catalog.schema.relations().filter_map(|r| match r {
            Relation::Sequence(s) if s.owned_by.is_some_and(|o| o.0 == id) => Some(s.id),
            _ => None,
        });
        let mut changes = drop_records(&table.def);
        changes.extend([id].into_iter().chain(owned).map(Change::Drop));
        Ok(changes)
    })
}
