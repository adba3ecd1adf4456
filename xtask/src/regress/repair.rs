//! Keeps canon's tables beside PostgreSQL's, so that a statement stands alone.
//!
//! ```text
//! a statement was refused at canon ─▶ the relations that it names are *stale*
//! the next unit names a stale one  ─▶ form and rows are taken anew from PostgreSQL's session
//! canon says 42P01                 ─▶ the same for that relation, and the unit runs again
//! ```
//! Canon runs a unit first, so PostgreSQL's session still shows the state before it. Where both have the same columns, only the rows are
//! taken. Else canon gets a plain table in the relation's place, a *stand-in*: with PostgreSQL's columns, constraints and rows, and
//! with `text` for a type that canon does not have. A stand-in is looked at again when anything was written since, and made anew where
//! it is not what PostgreSQL has now.
//!
//! Everything goes through the two sessions of the script, since only they see what is not committed. Rows travel in files by `\copy`,
//! whose form no `\pset` of the script changes.
//!
//! Left out on purpose: functions, types and other objects; what names them is counted as what follows.

use super::psql::{Answer, Psql};
use super::statement;
use super::verdict::Book;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Runs of one unit after repairs.
pub const TRIES: usize = 8;

/// Relations of this many rows and more are left alone.
const LARGEST: u64 = 200_000;

pub struct Repair {
    stale: HashSet<String>,
    stand_ins: HashMap<String, StandIn>,
    writes: u64,
    /// Whether canon has the type.
    types: HashMap<String, bool>,
    directory: PathBuf,
    pub in_block: bool,
}

/// A table in a relation's place.
struct StandIn {
    /// The number of writes at which it was last what PostgreSQL has.
    at: u64,
    wanted: Form,
    had: Option<Form>,
    constraints: Vec<String>,
}

/// A relation as one side describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Form {
    kind: String,
    temporary: bool,
    columns: Vec<Column>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    name: String,
    ty: String,
    required: bool,
    generated: bool,
    default: String,
}

impl Repair {
    pub fn new(directory: &Path) -> Repair {
        Repair {
            stale: HashSet::new(),
            stand_ins: HashMap::new(),
            writes: 0,
            types: HashMap::new(),
            directory: directory.to_path_buf(),
            in_block: false,
        }
    }

    /// Before a unit: renews what it names.
    pub fn before(&mut self, unit: &str, ours: &mut Psql, theirs: &mut Psql, book: &mut Book) {
        let words: HashSet<String> = statement::words(unit).into_iter().collect();
        let old = |w: &&String| {
            let since = self.stand_ins.get(*w).is_some_and(|s| s.at < self.writes);
            self.stale.contains(*w) || since
        };
        let mut due: Vec<String> = words.iter().filter(old).cloned().collect();
        due.sort();
        for name in due {
            self.renew(&name, ours, theirs, book);
        }
    }

    /// After canon's error: whether a relation was missing that PostgreSQL has, and is there now.
    pub fn missing(
        &mut self,
        answer: &Answer,
        ours: &mut Psql,
        theirs: &mut Psql,
        book: &mut Book,
    ) -> bool {
        if answer.state.as_deref() != Some("42P01") {
            return false;
        }
        let Some(name) = answer.lines.iter().find_map(|l| missing_relation(l)) else {
            return false;
        };
        self.renew(&name, ours, theirs, book)
    }

    /// After a unit that one side took and the other did not.
    pub fn apart(
        &mut self,
        unit: &str,
        theirs_ok: bool,
        ours: &mut Psql,
        theirs: &mut Psql,
        book: &mut Book,
    ) {
        if statement::only_reads(unit) {
            return;
        }
        let words = statement::words(unit);
        let mut names = self.relations(&words, theirs, "theirs");
        names.extend(self.relations(&words, ours, "ours"));
        if theirs_ok && statement::defines(unit) {
            book.altered.extend(names.iter().cloned());
            book.refused(unit);
        }
        self.stale.extend(names);
    }

    /// After any unit that PostgreSQL took.
    pub fn wrote(&mut self, unit: &str) {
        if !statement::only_reads(unit) {
            self.writes += 1;
        }
    }

    /// After the end of a block, which may have taken back what a repair had made.
    pub fn block_ended(&mut self) {
        self.in_block = false;
        self.writes += 1;
        self.stale.extend(self.stand_ins.keys().cloned());
    }

    /// Which of the words name a relation.
    fn relations(&self, words: &[String], side: &mut Psql, name: &str) -> Vec<String> {
        let list: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
        if list.is_empty() {
            return Vec::new();
        }
        let query = format!(
            "SELECT DISTINCT relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND relname IN ({}) AND relnamespace <> 11",
            list.join(", ")
        );
        self.fetch(&query, side, name)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|row| row.into_iter().next())
            .collect()
    }

    /// The rows of a query.
    fn fetch(&self, query: &str, side: &mut Psql, name: &str) -> Option<Vec<Vec<String>>> {
        let file = self.directory.join(format!("fetch-{name}"));
        let answer = side.ask(&format!("\\copy ({query}) TO '{}'", file.display()));
        if !is_done(&answer) {
            return None;
        }
        let text = std::fs::read_to_string(&file).ok()?;
        let row = |l: &str| l.split('\t').map(String::from).collect();
        Some(text.lines().map(row).collect())
    }

    /// Runs a statement at canon that may fail without harm to the block.
    fn attempt(&self, sql: &str, ours: &mut Psql) -> bool {
        if !self.in_block {
            return is_done(&ours.ask(sql));
        }
        ours.ask("SAVEPOINT canon_repair;");
        let done = is_done(&ours.ask(sql));
        if !done {
            ours.ask("ROLLBACK TO canon_repair;");
        }
        ours.ask("RELEASE canon_repair;");
        done
    }

    /// Makes canon's relation as PostgreSQL's is now. `false`: PostgreSQL has none, or canon could not make it.
    fn renew(&mut self, name: &str, ours: &mut Psql, theirs: &mut Psql, book: &mut Book) -> bool {
        self.stale.remove(name);
        let quoted = quote(name);
        let wanted = self.form(&quoted, theirs, "theirs");
        let had = self.form(&quoted, ours, "ours");
        let Some(wanted) = wanted else {
            if let Some(had) = had {
                self.attempt(&drop_of(&quoted, &had.kind), ours);
            }
            self.stand_ins.remove(name);
            return false;
        };
        let same = had.as_ref().is_some_and(|h| alike(h, &wanted));
        let is_view = had.as_ref().is_some_and(|h| h.kind == "v");
        if same && is_view && wanted.kind == "v" {
            return true;
        }
        let rows = self.rows(&quoted, &wanted, theirs);
        let plain = wanted.kind == "r" && !self.stand_ins.contains_key(name);
        if same && !is_view && plain {
            return rows.is_some_and(|file| {
                self.has(&quoted, &wanted, &file, ours)
                    || self.fill(&quoted, &wanted, &file, true, ours)
            });
        }
        let constraints = self.constraints(&quoted, theirs);
        let stays = self.stand_ins.get(name).is_some_and(|s| {
            let form = s.wanted == wanted && s.had == had && had.is_some();
            form && s.constraints == constraints
        });
        book.altered.insert(bare(name).to_owned());
        if let Some(file) = rows.as_ref().filter(|_| stays)
            && self.has(&quoted, &wanted, file, ours)
        {
            self.stand_ins.get_mut(name).expect("just found").at = self.writes;
            return true;
        }
        if let Some(had) = had {
            self.attempt(&drop_of(&quoted, &had.kind), ours);
        }
        let made = self.make(&quoted, &wanted, ours);
        if let Some(file) = rows {
            self.fill(&quoted, &wanted, &file, false, ours);
        }
        if made {
            for c in &constraints {
                let add = format!("ALTER TABLE {quoted} ADD CONSTRAINT {c};");
                self.attempt(&add, ours);
            }
        }
        let stand_in = StandIn {
            at: self.writes,
            had: self.form(&quoted, ours, "ours"),
            wanted,
            constraints,
        };
        self.stand_ins.insert(name.to_owned(), stand_in);
        made
    }

    fn form(&self, quoted: &str, side: &mut Psql, name: &str) -> Option<Form> {
        let literal = quoted.replace('\'', "''");
        let class = format!("pg_catalog.to_regclass('{literal}')");
        let head =
            format!("SELECT relkind, relpersistence FROM pg_catalog.pg_class WHERE oid = {class}");
        let heads = self.fetch(&head, side, name)?;
        let head = heads.first()?;
        let columns = format!(
            "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated, coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '') FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = {class} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        );
        let column = |row: Vec<String>| {
            let mut row = row.into_iter();
            let mut next = || row.next().unwrap_or_default();
            Column {
                name: next(),
                ty: next(),
                required: next() == "t",
                generated: next() == "s",
                default: next(),
            }
        };
        let columns = self.fetch(&columns, side, name)?;
        Some(Form {
            kind: head.first()?.clone(),
            temporary: head.get(1)? == "t",
            columns: columns.into_iter().map(column).collect(),
        })
    }

    /// Writes PostgreSQL's rows to a file.
    fn rows(&self, quoted: &str, form: &Form, theirs: &mut Psql) -> Option<PathBuf> {
        let count = self.fetch(&format!("SELECT count(*) FROM {quoted}"), theirs, "theirs")?;
        if count.first()?.first()?.parse::<u64>().ok()? > LARGEST {
            return None;
        }
        let file = self.directory.join("rows");
        let copy = copy_to(&file, quoted, form);
        is_done(&theirs.ask(&copy)).then_some(file)
    }

    /// Whether canon's relation has the rows of the file, in their order.
    fn has(&self, quoted: &str, form: &Form, file: &Path, ours: &mut Psql) -> bool {
        let own = self.directory.join("rows-ours");
        let read = |path: &Path| std::fs::read(path).ok();
        self.attempt(&copy_to(&own, quoted, form), ours) && read(&own) == read(file)
    }

    fn fill(&self, quoted: &str, form: &Form, file: &Path, again: bool, ours: &mut Psql) -> bool {
        if again && !self.attempt(&format!("DELETE FROM {quoted};"), ours) {
            return false;
        }
        let columns = columns(form);
        let path = file.display();
        self.attempt(&format!("\\copy {quoted} ({columns}) FROM '{path}'"), ours)
    }

    /// Makes the plain table; without defaults where canon does not take them.
    fn make(&mut self, quoted: &str, form: &Form, ours: &mut Psql) -> bool {
        if let Some((schema, _)) = quoted.split_once("\".\"") {
            self.attempt(&format!("CREATE SCHEMA IF NOT EXISTS {schema}\";"), ours);
        }
        let mut known = Vec::new();
        for column in &form.columns {
            let has = match self.types.get(&column.ty) {
                Some(has) => *has,
                None => self.attempt(&format!("SELECT NULL::{};", column.ty), ours),
            };
            self.types.insert(column.ty.clone(), has);
            known.push(has);
        }
        let full = create(quoted, form, &known, true);
        self.attempt(&full, ours) || self.attempt(&create(quoted, form, &known, false), ours)
    }

    /// PostgreSQL's constraints, each with its name.
    fn constraints(&self, quoted: &str, theirs: &mut Psql) -> Vec<String> {
        let literal = quoted.replace('\'', "''");
        let query = format!(
            "SELECT pg_catalog.quote_ident(conname) || ' ' || pg_catalog.pg_get_constraintdef(oid) FROM pg_catalog.pg_constraint WHERE conrelid = pg_catalog.to_regclass('{literal}') AND contype IN ('p', 'u', 'c') ORDER BY contype DESC, conname"
        );
        let rows = self.fetch(&query, theirs, "theirs").unwrap_or_default();
        rows.into_iter()
            .filter_map(|row| row.into_iter().next())
            .collect()
    }
}

fn is_done(answer: &Answer) -> bool {
    answer.state.is_none() && !answer.lines.iter().any(|l| l.starts_with('\\'))
}

/// The name in `relation "x" does not exist`, at the head of an error.
fn missing_relation(line: &str) -> Option<String> {
    let rest = line.strip_prefix("ERROR:  ")?;
    let rest = ["relation \"", "table \"", "view \"", "materialized view \""]
        .iter()
        .find_map(|s| rest.strip_prefix(s))?;
    rest.strip_suffix("\" does not exist").map(String::from)
}

/// `s.t` as `"s"."t"`.
fn quote(name: &str) -> String {
    let parts = name.split('.').map(|p| format!("\"{p}\""));
    parts.collect::<Vec<_>>().join(".")
}

fn bare(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn copy_to(file: &Path, quoted: &str, form: &Form) -> String {
    let (columns, path) = (columns(form), file.display());
    format!("\\copy (SELECT {columns} FROM {quoted}) TO '{path}'")
}

fn drop_of(quoted: &str, kind: &str) -> String {
    let what = if kind == "v" { "VIEW" } else { "TABLE" };
    format!("DROP {what} IF EXISTS {quoted} CASCADE;")
}

fn columns(form: &Form) -> String {
    let stored = form.columns.iter().filter(|c| !c.generated);
    let names = stored.map(|c| format!("\"{}\"", c.name));
    names.collect::<Vec<_>>().join(", ")
}

/// Whether rows of the one fit the other.
fn alike(a: &Form, b: &Form) -> bool {
    let all = |f: &Form| -> Vec<(String, String, bool)> {
        let column = |c: &Column| (c.name.clone(), c.ty.clone(), c.generated);
        f.columns.iter().map(column).collect()
    };
    a.temporary == b.temporary && all(a) == all(b)
}

fn create(quoted: &str, form: &Form, known: &[bool], defaults: bool) -> String {
    let column = |(c, known): (&Column, &bool)| {
        let ty = if *known { &c.ty } else { "text" };
        let mut text = format!("\"{}\" {ty}", c.name);
        if defaults && *known && !c.generated && !c.default.is_empty() {
            text += &format!(" DEFAULT {}", c.default);
        }
        if c.required {
            text += " NOT NULL";
        }
        text
    };
    let columns: Vec<String> = form.columns.iter().zip(known).map(column).collect();
    let temporary = if form.temporary { "TEMP " } else { "" };
    // A temporary table's schema is not named.
    let name = match form.temporary {
        true => quoted.rsplit('.').next().unwrap_or(quoted),
        false => quoted,
    };
    format!("CREATE {temporary}TABLE {name} ({});", columns.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> Form {
        let column = |name: &str, ty: &str, default: &str| Column {
            name: name.into(),
            ty: ty.into(),
            required: name == "a",
            generated: name == "g",
            default: default.into(),
        };
        Form {
            kind: "p".into(),
            temporary: false,
            columns: vec![
                column("a", "integer", "1"),
                column("b", "point", "'(1,2)'::point"),
                column("g", "integer", "(a * 2)"),
            ],
        }
    }

    #[test]
    fn a_stand_in_has_text_for_what_is_not_known() {
        assert_eq!(
            create("\"s\".\"t\"", &form(), &[true, false, true], true),
            "CREATE TABLE \"s\".\"t\" (\"a\" integer DEFAULT 1 NOT NULL, \"b\" text, \"g\" integer);"
        );
        assert_eq!(columns(&form()), "\"a\", \"b\"");
    }

    #[test]
    fn the_missing_relation_is_named() {
        let name = missing_relation("ERROR:  relation \"s.t\" does not exist");
        assert_eq!(name.as_deref(), Some("s.t"));
        assert_eq!(quote("s.t"), "\"s\".\"t\"");
        assert_eq!(
            missing_relation("ERROR:  column \"t\" does not exist"),
            None
        );
    }

    #[test]
    fn rows_fit_where_names_and_types_are_equal() {
        let mut other = form();
        other.columns[0].default.clear();
        assert!(alike(&form(), &other));
        other.columns[0].ty = "bigint".into();
        assert!(!alike(&form(), &other));
    }
}
