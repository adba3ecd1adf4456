//! Rows that were set aside as texts: for a person, for SQL, and to compare with what a server answers.
//!
//! Values are written as a server writes them with PostgreSQL's default settings, which `apply` asks of its session. So two values
//! are the same if their texts are.
//!
//! Left out on purpose: names of relations in `regclass` columns. They stand here as numbers, at a server as names, so such rows conflict.

use base::Value;
use base::schema::{Identity, Table};
use node::aside::{Aside, Line, Stood, Write};
use sql::types::settings::OutputSettings;
use sql::types::text::output_column;

/// A column's name and its value, NULL as none; dropped columns are left out.
pub type TextRow = Vec<(String, Option<String>)>;

/// See the head of the file.
pub struct Texts<'a> {
    pub aside: &'a Aside,
    settings: OutputSettings,
}

impl<'a> Texts<'a> {
    pub fn new(aside: &'a Aside) -> Texts<'a> {
        Texts {
            aside,
            settings: OutputSettings::default(),
        }
    }

    /// The values of a row.
    pub fn row(&self, table: &Table, values: &[Value]) -> TextRow {
        let columns = table.def.columns.iter().zip(values);
        let columns = columns.filter(|(c, _)| !c.dropped);
        columns
            .map(|(c, v)| {
                let text = (!v.is_null()).then(|| {
                    let mut out = String::new();
                    output_column(v, c.ty(), &self.settings, &mut out);
                    out
                });
                (c.name.clone(), text)
            })
            .collect()
    }

    /// A line's versions.
    pub fn versions(&self, line: &Line) -> Vec<Stood<TextRow>> {
        let text = |v: &node::aside::Version| match (&v.row, &v.table) {
            (Stood::Row(values), Some(t)) => Stood::Row(self.row(t, values)),
            (Stood::Absent, _) => Stood::Absent,
            _ => Stood::Unknown,
        };
        line.versions.iter().map(text).collect()
    }

    /// The columns of the primary key with their values; none without a key, or where no version of the row is known.
    pub fn key(&self, line: &Line) -> Option<TextRow> {
        let (table, values) = line.known_row()?;
        let primary = &table.def.indexes[table.primary()?];
        let row = self.row(table, values);
        let names = primary
            .columns
            .iter()
            .map(|c| &table.def.columns[c.column as usize].name);
        names
            .map(|n| row.iter().find(|c| c.0 == *n).cloned())
            .collect()
    }

    /// `schema.table` for a person.
    pub fn table_name(&self, w: Write) -> String {
        match self.aside.table(w) {
            Some(t) => {
                let (schema, name) = self.aside.qualified(t);
                format!("{schema}.{name}")
            }
            None => format!("the table in storage {}", self.aside.lines[w.line].storage),
        }
    }

    /// A write in words.
    pub fn describe(&self, w: Write) -> String {
        let line = &self.aside.lines[w.line];
        let versions = self.versions(line);
        let name = self.table_name(w);
        let key = match self.key(line) {
            Some(k) => format!(" ({})", list(&k)),
            None => String::new(),
        };
        let (before, after) = (&versions[w.step - 1], &versions[w.step]);
        match (before, after) {
            (Stood::Row(old), Stood::Row(new)) => {
                let changed = changes(old, new);
                let words: Vec<String> = changed
                    .iter()
                    .map(|(n, v)| {
                        let was = old.iter().find(|c| c.0 == *n).and_then(|c| c.1.as_deref());
                        format!("{n}: {} to {}", value(was), value(v.as_deref()))
                    })
                    .collect();
                match words.is_empty() {
                    true => format!("update {name}{key}: nothing changed"),
                    false => format!("update {name}{key}: {}", words.join(", ")),
                }
            }
            (Stood::Absent, Stood::Row(new)) => format!("insert {name}{key}: {}", list(new)),
            (Stood::Unknown, Stood::Row(new)) => format!("put {name}{key}: {}", list(new)),
            (Stood::Row(old), Stood::Absent) => format!("delete {name}{key}: was {}", list(old)),
            (_, Stood::Absent) => format!("delete {name}{key}"),
            (_, Stood::Unknown) => format!("write {name}{key}: the row is not readable"),
        }
    }
}

/// Columns of `new` that are other than in `old`.
pub fn changes(old: &TextRow, new: &TextRow) -> TextRow {
    new.iter().filter(|c| !old.contains(c)).cloned().collect()
}

fn value(v: Option<&str>) -> String {
    match v {
        None => "NULL".into(),
        Some(v) if v.chars().count() > 60 => {
            let short: String = v.chars().take(57).collect();
            format!("'{short}...'")
        }
        Some(v) => format!("'{v}'"),
    }
}

/// Columns for a person.
pub fn list(row: &TextRow) -> String {
    let all: Vec<String> = row
        .iter()
        .map(|(n, v)| format!("{n} = {}", value(v.as_deref())))
        .collect();
    all.join(", ")
}

/// An identifier in SQL.
pub fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A value in SQL; the column that it is held against gives it its type.
pub fn literal(v: Option<&str>) -> String {
    match v {
        None => "NULL".into(),
        Some(v) => format!("'{}'", v.replace('\'', "''")),
    }
}

/// Whether rows can be inserted only by saying that the system's numbers are overridden.
pub fn overrides(table: &Table) -> bool {
    let mut columns = table.def.columns.iter().filter(|c| !c.dropped);
    columns.any(|c| c.identity == Some(Identity::Always))
}
