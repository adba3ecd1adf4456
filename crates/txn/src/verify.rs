//! Rows held against their table's definition: what every transaction has promised, looked at from outside.
//!
//! Of each row: that its bytes are a row of the table, that its key is the one of its values, NOT NULL, CHECK. Of each unique index: that no
//! two rows claim the same key. Of each foreign key: that the parent is there. Of each split value: that its further records are there, that
//! their sum keeps the bounds, and that there are no others. Nothing is taken from indexes, which a recovery builds from the rows: the rows
//! themselves are compared.
//!
//! The caller sees to it that nobody writes.
//!
//! Left out on purpose: values that no longer fit a type's modifier (`varchar(3)`), which casts see to, and expressions that say something
//! else today than when the row was written.

use base::{Error, Result, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use store::{IndexSpec, pin};

use crate::handle::{Catalog, RuleCompiler, TableHandle, TableRules};
use crate::key_values::{parent_key, values_of};

/// Something wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFault {
    /// `schema.table`.
    pub table: String,
    /// Its key: `(id)=(7)`, or the number of a row without one.
    pub row: String,
    pub what: String,
}

/// A foreign key of the table, ready to be asked.
struct Parent {
    place: usize,
    handle: Arc<TableHandle>,
    /// Keys of the referenced index; none: it is the primary key, and the rows themselves are asked.
    keys: Option<HashSet<Box<[u8]>>>,
}

/// Holds every row of a table against the table's definition. How many rows there are.
pub fn verify_rows(
    catalog: &Catalog,
    table: &TableHandle,
    compiler: Option<&dyn RuleCompiler>,
    each: &mut dyn FnMut(RowFault),
) -> Result<u64> {
    let def = &table.table.def;
    let namespace = catalog.schema.namespace(def.namespace);
    let name = format!("{}.{}", namespace.map_or("?", |n| &n.name), def.name);
    let uniques = (0..def.indexes.len()).filter(|i| def.indexes[*i].unique);
    let uniques = uniques
        .filter(|i| !def.indexes[*i].primary)
        .map(|place| Unique {
            place,
            spec: TableHandle::index_spec(&table.table, place),
            seen: HashMap::new(),
        });
    let mut verifier = Verifier {
        table,
        rules: table.rules(&catalog.schema, compiler)?,
        parents: parents_of(catalog, table, &name)?,
        uniques: uniques.collect(),
        key: Vec::new(),
    };
    let guard = pin();
    let mut rows = 0;
    table.storage.for_each(&guard, |r| {
        let Some(bytes) = r.newest(&guard).and_then(|v| v.row()) else {
            return;
        };
        rows += 1;
        verifier.row(r.key(), bytes, &mut |row, what| {
            let table = name.clone();
            let row = row.to_owned();
            each(RowFault { table, row, what });
        });
    });
    table.stray_records(&guard, &mut |key, column| {
        each(RowFault {
            table: name.clone(),
            row: format!("with the key {}", hex(key)),
            what: format!("a further record of column {column} that no row counts"),
        });
    });
    Ok(rows)
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|b| format!("{b:02x}")).collect()
}

fn parents_of(catalog: &Catalog, table: &TableHandle, name: &str) -> Result<Vec<Parent>> {
    let mut parents = Vec::new();
    let keys = table.table.def.foreign_keys.iter().enumerate();
    for (place, fk) in keys.filter(|(_, f)| !f.not_valid) {
        let what = format!("{name}: foreign key {} references nothing", fk.name);
        let handle = catalog
            .table(fk.ref_table)
            .ok_or_else(|| Error::internal(what.clone()))?;
        let indexes = &handle.table.def.indexes;
        let index = indexes.iter().position(|i| i.id == fk.ref_index);
        let index = index.ok_or_else(|| Error::internal(what))?;
        let primary = indexes[index].primary;
        parents.push(Parent {
            place,
            handle: handle.clone(),
            keys: (!primary).then(|| keys_of(handle, index)),
        });
    }
    Ok(parents)
}

/// A unique index of the table, with the keys that rows have claimed so far, each with its row.
struct Unique {
    place: usize,
    spec: IndexSpec,
    seen: HashMap<Box<[u8]>, String>,
}

/// What the rows of one table are held against.
struct Verifier<'t> {
    table: &'t TableHandle,
    rules: Option<&'t Arc<dyn TableRules>>,
    parents: Vec<Parent>,
    uniques: Vec<Unique>,
    key: Vec<u8>,
}

/// Takes a fault: the row, and what is wrong with it.
type Fault<'a> = &'a mut dyn FnMut(&str, String);

impl Verifier<'_> {
    /// One row under its key.
    fn row(&mut self, key: &[u8], bytes: &[u8], fault: Fault<'_>) {
        let table = self.table;
        if !table.table.layout.check(bytes) {
            let row = format!("with the key {}", hex(key));
            return fault(&row, "its bytes are no row of this table".into());
        }
        let values = table.table.layout.row(bytes).values();
        let row = match table.primary_place() {
            Some(_) => table.describe(&table.key_columns, &values),
            None => format!("number {}", hex(key)),
        };
        let columns = table.table.def.columns.iter().zip(&values);
        let mut null = columns.filter(|(c, v)| c.not_null && !c.dropped && v.is_null());
        if let Some((c, _)) = null.next() {
            let what = format!("column {} is NULL and must not be", c.name);
            return fault(&row, what);
        }
        self.key_of_row(key, &row, &values, fault);
        for what in table.records_faults(key, table.table.layout.row(bytes), &pin()) {
            fault(&row, what);
        }
        if let Some(rules) = self.rules
            && let Err(e) = rules.check_stored(&values)
        {
            let f = e.fields();
            let what = match f.constraint.is_empty() {
                true => f.message.clone(),
                false => format!("it violates the check constraint {}", f.constraint),
            };
            fault(&row, what);
        }
        self.unique_keys(&row, bytes, fault);
        self.foreign_keys(&row, &values, fault);
    }

    fn key_of_row(&mut self, key: &[u8], row: &str, values: &[Value], fault: Fault<'_>) {
        if self.table.primary_place().is_none() {
            if key.len() != 8 {
                fault(row, "its number is none".into());
            }
            return;
        }
        self.key.clear();
        match self.table.primary_key(values, &mut self.key) {
            Ok(()) if self.key == key => {}
            Ok(()) => fault(row, "it stands under the key of another row".into()),
            Err(e) => fault(row, e.fields().message.clone()),
        }
    }

    fn unique_keys(&mut self, row: &str, bytes: &[u8], fault: Fault<'_>) {
        for u in &mut self.uniques {
            self.key.clear();
            let null = u.spec.columns_of(bytes, &mut self.key);
            if null && !u.spec.nulls_not_distinct {
                continue;
            }
            if let Some(other) = u.seen.insert(self.key.as_slice().into(), row.to_owned()) {
                let index = &self.table.table.def.indexes[u.place].name;
                let what =
                    format!("it has the same key of the unique index {index} as row {other}");
                fault(row, what);
            }
        }
    }

    fn foreign_keys(&self, row: &str, values: &[Value], fault: Fault<'_>) {
        for p in &self.parents {
            let fk = &self.table.table.def.foreign_keys[p.place];
            let Some(wanted) = values_of(values, &fk.columns) else {
                continue;
            };
            let found = match parent_key(&p.handle, fk, &wanted) {
                Ok((key, _)) => match &p.keys {
                    Some(keys) => keys.contains(key.as_slice()),
                    None => is_there(&p.handle, &key),
                },
                Err(_) => false,
            };
            if !found {
                let wanted = describe(self.table, &fk.columns, values);
                let what = format!(
                    "foreign key {}: {wanted} is not in table {}",
                    fk.name,
                    p.handle.name()
                );
                fault(row, what);
            }
        }
    }
}

fn describe(table: &TableHandle, columns: &[u16], values: &[Value]) -> String {
    let places: Vec<usize> = columns.iter().map(|c| usize::from(*c)).collect();
    table.describe(&places, values)
}

fn is_there(table: &TableHandle, key: &[u8]) -> bool {
    let guard = pin();
    let found = table.storage.primary.get(key, &guard);
    found.is_some_and(|r| r.newest(&guard).is_some_and(|v| v.row().is_some()))
}

/// The keys of a unique index, made of the rows.
fn keys_of(table: &TableHandle, place: usize) -> HashSet<Box<[u8]>> {
    let spec = TableHandle::index_spec(&table.table, place);
    let guard = pin();
    let (mut keys, mut key) = (HashSet::new(), Vec::new());
    table.storage.for_each(&guard, |r| {
        let row = r.newest(&guard).and_then(|v| v.row());
        if let Some(row) = row.filter(|row| table.table.layout.check(row)) {
            key.clear();
            spec.columns_of(row, &mut key);
            keys.insert(key.as_slice().into());
        }
    });
    keys
}
