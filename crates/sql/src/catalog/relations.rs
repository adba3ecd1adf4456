//! The catalog relations: their numbers, names and columns, read from `relations.txt` (PostgreSQL 15's own list), and the code
//! that fills each. A relation without code is empty: that is the truth for kinds of objects that Canon does not have.
//!
//! Rows are written by column name ([`Row`]), so that the order of columns lives in one place. A column that the code does
//! not name is NULL, or the zero of its type when PostgreSQL declares it NOT NULL.
//!
//! Left out on purpose: indexes over catalogs (a scan builds some thousand short rows at most), system columns.

use super::{CatalogScan, VirtualTable};
use base::{Oid, Result, Type, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Fills a relation: pushes rows through [`Rows`].
pub(super) type Fill = fn(&CatalogScan<'_>, &mut Rows) -> Result<()>;

pub(super) struct Relation {
    pub oid: Oid,
    pub namespace: Oid,
    pub name: &'static str,
    /// `r` table, `v` view: what `pg_class.relkind` says.
    pub kind: u8,
    pub columns: Vec<(&'static str, Type)>,
    pub not_null: Vec<bool>,
    by_name: HashMap<&'static str, usize>,
    fill: Option<Fill>,
}

impl VirtualTable for Relation {
    fn oid(&self) -> Oid {
        self.oid
    }
    fn namespace(&self) -> Oid {
        self.namespace
    }
    fn name(&self) -> &'static str {
        self.name
    }
    fn columns(&self) -> &[(&'static str, Type)] {
        &self.columns
    }
    fn scan(&self, cx: &CatalogScan<'_>) -> Result<Vec<Vec<Value>>> {
        let mut rows = Rows {
            relation: self,
            rows: Vec::new(),
        };
        if let Some(fill) = self.fill {
            fill(cx, &mut rows)?;
        }
        Ok(rows.rows)
    }
}

/// The rows of one scan.
pub(super) struct Rows<'a> {
    relation: &'a Relation,
    rows: Vec<Vec<Value>>,
}

impl Rows<'_> {
    /// Adds a row of the named columns. Panics on a name that the relation has not: the lists are fixed at build time.
    pub fn push(&mut self, columns: &[(&str, Value)]) {
        let r = self.relation;
        let zero = |i: usize| match r.not_null[i] {
            true => zero_of(r.columns[i].1),
            false => Value::Null,
        };
        let mut row: Vec<Value> = (0..r.columns.len()).map(zero).collect();
        for (name, value) in columns {
            let i = *r
                .by_name
                .get(name)
                .unwrap_or_else(|| panic!("{} has no column {name}", r.name));
            row[i] = value.clone();
        }
        self.rows.push(row);
    }
}

impl Rows<'_> {
    /// What the last row says nothing of is 0, where it counts.
    pub fn zeros(&mut self) {
        let Some(row) = self.rows.last_mut() else {
            return;
        };
        for (v, (_, ty)) in row.iter_mut().zip(&self.relation.columns) {
            let counts = matches!(ty, Type::Int4 | Type::Int8 | Type::Float8 | Type::Numeric);
            if v.is_null() && counts {
                *v = match ty {
                    Type::Numeric => Value::from(base::Numeric::from(0)),
                    ty => zero_of(*ty),
                };
            }
        }
    }
}

fn zero_of(ty: Type) -> Value {
    match ty {
        Type::Bool => Value::Bool(false),
        Type::Int2 => Value::Int2(0),
        Type::Int4 => Value::Int4(0),
        Type::Int8 => Value::Int8(0),
        Type::Float4 => Value::Float4(0.0),
        Type::Float8 => Value::Float8(0.0),
        Type::Oid | Type::RegClass | Type::RegType | Type::RegProc | Type::RegNamespace => {
            Value::Oid(0)
        }
        Type::Char => Value::Char(0),
        t if t.element().is_some() => Value::Array(Box::new(base::Array::one_dim(
            t.element().expect("guarded"),
            vec![],
        ))),
        _ => Value::text(""),
    }
}

/// All catalog relations.
pub(super) static RELATIONS: LazyLock<Vec<Relation>> = LazyLock::new(|| {
    include_str!("relations.txt")
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(relation)
        .collect()
});

static BY_NAME: LazyLock<HashMap<(Oid, &'static str), usize>> = LazyLock::new(|| {
    let key = |(i, r): (usize, &Relation)| ((r.namespace, r.name), i);
    RELATIONS.iter().enumerate().map(key).collect()
});

static BY_OID: LazyLock<HashMap<Oid, usize>> = LazyLock::new(|| {
    RELATIONS
        .iter()
        .enumerate()
        .map(|(i, r)| (r.oid, i))
        .collect()
});

pub(super) fn named(namespace: Oid, name: &str) -> Option<&'static Relation> {
    BY_NAME.get(&(namespace, name)).map(|&i| &RELATIONS[i])
}

pub(super) fn numbered(oid: Oid) -> Option<&'static Relation> {
    BY_OID.get(&oid).map(|&i| &RELATIONS[i])
}

fn relation(line: &'static str) -> Relation {
    let mut words = line.split(' ');
    let mut word = || words.next().expect("relations.txt is well formed");
    let number = |s: &str| s.parse::<Oid>().expect("relations.txt has numbers");
    let _ = word();
    let namespace = match word() {
        "pg_catalog" => base::schema::PG_CATALOG,
        _ => base::schema::INFORMATION_SCHEMA,
    };
    let (oid, name, kind) = (number(word()), word(), word().as_bytes()[0]);
    let (mut columns, mut not_null) = (vec![], vec![]);
    for column in words {
        let (name, ty) = column.split_once(':').expect("name:type");
        let plain = name.trim_end_matches('!');
        columns.push((plain, column_type(ty)));
        not_null.push(plain.len() != name.len());
    }
    let by_name = columns.iter().enumerate().map(|(i, c)| (c.0, i)).collect();
    Relation {
        oid,
        namespace,
        name,
        kind,
        columns,
        not_null,
        by_name,
        fill: super::fill(namespace, name),
    }
}

/// Our type for PostgreSQL's. Types that only catalogs use become the nearest that clients print alike.
fn column_type(name: &str) -> Type {
    match name {
        "xid" => Type::Oid,
        "anyarray" => Type::TextArray,
        _ => Type::ALL
            .iter()
            .copied()
            .find(|t| t.typname() == name)
            .unwrap_or(Type::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_whole_and_numbers_are_unique() {
        assert!(RELATIONS.len() > 100);
        assert_eq!(BY_OID.len(), RELATIONS.len());
        assert_eq!(BY_NAME.len(), RELATIONS.len());
        let class = named(base::schema::PG_CATALOG, "pg_class").unwrap();
        assert_eq!(class.oid, 1259);
        assert_eq!(class.columns[0], ("oid", Type::Oid));
        assert_eq!(class.columns.len(), 33);
        assert!(RELATIONS.iter().all(|r| r.oid < base::id::FIRST_USER_OID));
    }
}
