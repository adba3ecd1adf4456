//! VACUUM, ANALYZE, REINDEX, CLUSTER.
//!
//! There is nothing to do: versions of rows that nobody sees any more are reclaimed all the time, indexes are right by themselves, and the
//! planner takes its figures from the tables as they are. So a statement checks what PostgreSQL checks, and takes the lock that it takes there:
//!
//! | statement | lock on each table that it names |
//! |---|---|
//! | VACUUM, ANALYZE, REINDEX CONCURRENTLY, ALTER TABLE with a setting that means nothing here | SHARE UPDATE EXCLUSIVE |
//! | REINDEX | SHARE |
//! | VACUUM FULL, CLUSTER | ACCESS EXCLUSIVE |
//!
//! It waits for the transactions that keep this lock off, and gives the lock back at the end of its own transaction.
//!
//! Left out on purpose: locks of a statement that names no table (VACUUM, ANALYZE, CLUSTER of everything, REINDEX DATABASE), which would wait for
//! one table and keep the others locked meanwhile; locks on indexes, for which PostgreSQL's REINDEX waits for readers, and its CONCURRENTLY for all
//! who read and write rows.

use super::extra::Words;
use super::work::Work;
use super::{DdlContext, DdlOutcome};
use crate::catalog::{self, Resolved};
use base::schema::{BOOTSTRAP_ROLE, Relation, Table};
use base::{Error, Oid, Result, SqlState};
use sqlparser::ast::{Ident, ObjectName};
use sqlparser::tokenizer::Token;
use txn::{Stop, TableModes, Txn, WaitPolicy};

/// A statement as it was written.
#[derive(Clone, Debug)]
pub struct Upkeep {
    tag: &'static str,
    what: Upkept,
    /// With the columns of ANALYZE.
    relations: Vec<(ObjectName, Vec<Ident>)>,
    /// Refuses to run inside of a transaction block (25001).
    alone: bool,
    mode: TableModes,
    /// A table whose lock is not to be had is passed over.
    skip_locked: bool,
}

impl Upkeep {
    /// ALTER TABLE with a setting that means nothing here.
    pub(super) fn alter_table(name: ObjectName) -> Upkeep {
        Upkeep {
            tag: "ALTER TABLE",
            what: Upkept::Table,
            relations: vec![(name, vec![])],
            alone: false,
            mode: TableModes::SHARE_UPDATE_EXCLUSIVE,
            skip_locked: false,
        }
    }
}

/// What it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upkept {
    /// VACUUM, ANALYZE: what is another's is skipped with a warning.
    Skipped,
    Table,
    Index,
    Schema,
    Database,
}

/// The options of a statement that are known, and whether each is on.
struct Switches(Vec<(String, bool)>);

impl Switches {
    fn said(&self, name: &str) -> Option<bool> {
        let mut all = self.0.iter().rev();
        all.find(|o| o.0 == name).map(|o| o.1)
    }

    fn on(&self, name: &str) -> bool {
        self.said(name) == Some(true)
    }

    fn off(&self, name: &str) -> bool {
        self.said(name) == Some(false)
    }
}

const OF_VACUUM: &[&str] = &[
    "verbose",
    "skip_locked",
    "analyze",
    "analyse",
    "freeze",
    "full",
    "disable_page_skipping",
    "index_cleanup",
    "process_toast",
    "truncate",
    "parallel",
];

/// Catalogs that are of all databases in PostgreSQL.
const SHARED: &[&str] = &[
    "pg_auth_members",
    "pg_authid",
    "pg_database",
    "pg_db_role_setting",
    "pg_parameter_acl",
    "pg_replication_origin",
    "pg_shdepend",
    "pg_shdescription",
    "pg_shseclabel",
    "pg_subscription",
    "pg_tablespace",
];

fn syntax(message: String) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, message)
}

impl Words<'_> {
    pub(super) fn upkeep(&mut self, first: &str) -> Result<Upkeep> {
        self.0.next_token();
        match first {
            "vacuum" | "analyze" | "analyse" => self.vacuum(first == "vacuum"),
            "reindex" => self.reindex(),
            _ => self.cluster(),
        }
    }

    fn more(&self) -> bool {
        !matches!(self.0.peek_token().token, Token::EOF | Token::SemiColon)
    }

    fn vacuum(&mut self, vacuum: bool) -> Result<Upkeep> {
        let (tag, known) = match vacuum {
            true => ("VACUUM", OF_VACUUM),
            false => ("ANALYZE", &OF_VACUUM[..2]),
        };
        let mut switches = self.switches(tag, known)?;
        let words: &[&str] = match vacuum {
            true => &["full", "freeze", "verbose", "analyze", "analyse"],
            false => &["verbose"],
        };
        while let Some(word) = words.iter().find(|w| self.eat(w)) {
            switches.0.push(((*word).into(), true));
        }
        let mut relations = vec![];
        while self.more() {
            let name = self.name()?;
            let mut columns = vec![];
            if self.0.consume_token(&Token::LParen) {
                loop {
                    columns.push(self.ident()?);
                    if !self.0.consume_token(&Token::Comma) {
                        break;
                    }
                }
                if !self.0.consume_token(&Token::RParen) {
                    return Err(self.wrong());
                }
            }
            relations.push((name, columns));
            if !self.0.consume_token(&Token::Comma) {
                break;
            }
        }
        let analyzes = !vacuum || switches.on("analyze") || switches.on("analyse");
        let full = switches.on("full");
        if full && switches.on("parallel") {
            let what = "VACUUM FULL cannot be performed in parallel";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what));
        }
        if full && switches.off("process_toast") {
            let what = "PROCESS_TOAST required with VACUUM FULL";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what));
        }
        if !analyzes && relations.iter().any(|r| !r.1.is_empty()) {
            let what = "ANALYZE option must be specified when a column list is provided";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what));
        }
        Ok(Upkeep {
            tag,
            what: Upkept::Skipped,
            relations,
            alone: vacuum,
            mode: match full {
                true => TableModes::ACCESS_EXCLUSIVE,
                false => TableModes::SHARE_UPDATE_EXCLUSIVE,
            },
            skip_locked: switches.on("skip_locked"),
        })
    }

    fn reindex(&mut self) -> Result<Upkeep> {
        let switches = self.switches("REINDEX", &["verbose", "concurrently"])?;
        let kinds = [
            ("index", Upkept::Index),
            ("table", Upkept::Table),
            ("schema", Upkept::Schema),
            ("database", Upkept::Database),
            ("system", Upkept::Database),
        ];
        let Some((kind, what)) = kinds.iter().find(|k| self.at(k.0)) else {
            return Err(self.wrong());
        };
        self.eat(kind);
        let concurrently = self.eat("concurrently") || switches.on("concurrently");
        if concurrently && *kind == "system" {
            let what = "cannot reindex system catalogs concurrently";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what));
        }
        Ok(Upkeep {
            tag: "REINDEX",
            what: *what,
            relations: vec![(self.name()?, vec![])],
            alone: concurrently || matches!(what, Upkept::Schema | Upkept::Database),
            mode: match concurrently {
                true => TableModes::SHARE_UPDATE_EXCLUSIVE,
                false => TableModes::SHARE,
            },
            skip_locked: false,
        })
    }

    fn cluster(&mut self) -> Result<Upkeep> {
        self.switches("CLUSTER", &["verbose"])?;
        self.eat("verbose");
        let mut relations = vec![];
        if self.more() {
            relations.push((self.name()?, vec![]));
            if self.eat("using") {
                self.ident()?;
            }
        }
        Ok(Upkeep {
            tag: "CLUSTER",
            what: Upkept::Table,
            relations,
            alone: false,
            mode: TableModes::ACCESS_EXCLUSIVE,
            skip_locked: false,
        })
    }

    /// `(name [value], …)`, if it comes next.
    fn switches(&mut self, tag: &str, known: &[&str]) -> Result<Switches> {
        let mut all = vec![];
        if !self.0.consume_token(&Token::LParen) {
            return Ok(Switches(all));
        }
        loop {
            let name = catalog::fold(&self.ident()?);
            if tag == "REINDEX" && name == "tablespace" {
                return Err(Error::unsupported("REINDEX (TABLESPACE …)"));
            }
            if !known.contains(&name.as_str()) {
                return Err(syntax(format!("unrecognized {tag} option \"{name}\"")));
            }
            let value = match self.0.peek_token().token {
                Token::Comma | Token::RParen => None,
                _ => Some(self.0.next_token().token),
            };
            let value = value.map(|t| match t {
                Token::Word(w) => w.value.to_lowercase(),
                Token::SingleQuotedString(s) => s.to_lowercase(),
                t => t.to_string(),
            });
            let on = match (name.as_str(), value.as_deref()) {
                ("parallel", value) => workers(value)?,
                ("index_cleanup", Some("auto")) => true,
                (_, None | Some("true" | "on" | "1")) => true,
                (_, Some("false" | "off" | "0")) => false,
                _ => return Err(syntax(format!("{name} requires a Boolean value"))),
            };
            all.push((name, on));
            if !self.0.consume_token(&Token::Comma) {
                break;
            }
        }
        match self.0.consume_token(&Token::RParen) {
            true => Ok(Switches(all)),
            false => Err(self.wrong()),
        }
    }
}

/// Whether VACUUM's PARALLEL asks for workers.
fn workers(value: Option<&str>) -> Result<bool> {
    const MOST: u32 = 1024;
    let Some(value) = value else {
        let what = format!("parallel option requires a value between 0 and {MOST}");
        return Err(syntax(what));
    };
    match value.parse::<u32>() {
        Ok(n) if n <= MOST => Ok(n > 0),
        _ => Err(syntax(format!(
            "parallel workers for vacuum must be between 0 and {MOST}"
        ))),
    }
}

/// Runs the statement. May end with [`Stop::Blocked`] like any statement.
pub(super) fn execute(u: &Upkeep, txn: &mut Txn, ctx: &DdlContext<'_>) -> Result<DdlOutcome, Stop> {
    if u.alone && ctx.in_transaction_block {
        return Err(Error::new(
            SqlState::ACTIVE_SQL_TRANSACTION,
            format!("{} cannot run inside a transaction block", u.tag),
        )
        .into());
    }
    let catalog = txn.catalog();
    let mut no_oid = || 0;
    let mut work = Work::new((*catalog.schema).clone(), ctx, &mut no_oid);
    for (name, columns) in &u.relations {
        for table in work.upkept(u, name, columns)? {
            let Some(handle) = catalog.table(table) else {
                return Err(Error::internal("a table without a handle").into());
            };
            let wait = match u.skip_locked {
                true => WaitPolicy::SkipLocked,
                false => WaitPolicy::Wait,
            };
            if !txn.lock_table(handle, u.mode, wait)? {
                let word = match u.tag {
                    "VACUUM" => "vacuum",
                    _ => "analyze",
                };
                let name = &handle.table.def.name;
                let message = format!("skipping {word} of \"{name}\" --- lock not available");
                work.say(
                    "WARNING",
                    SqlState::LOCK_NOT_AVAILABLE,
                    message,
                    String::new(),
                );
            }
        }
    }
    let (_, _, notices) = work.finish();
    Ok(DdlOutcome {
        tag: u.tag.into(),
        notices,
    })
}

impl Work<'_> {
    /// The tables to lock. 42501 where the role may not have this looked after; VACUUM and ANALYZE skip it with a warning.
    fn upkept(&mut self, u: &Upkeep, name: &ObjectName, columns: &[Ident]) -> Result<Vec<Oid>> {
        match u.what {
            Upkept::Schema => {
                let (_, n) = self.split(name)?;
                let id = self.namespace(&n)?;
                let owner = self.schema.namespace(id).expect("found").owner;
                self.must_own("schema", &n, owner)?;
                return Ok(self.tables_in(id));
            }
            Upkept::Database => {
                let (_, n) = self.split(name)?;
                if n != self.ctx.database {
                    return Err(Error::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "can only reindex the currently open database",
                    ));
                }
                self.must_own("database", &n, BOOTSTRAP_ROLE)?;
                return Ok(vec![]);
            }
            Upkept::Skipped | Upkept::Table | Upkept::Index => {}
        }
        let found = self.resolve(name)?;
        let (kind, owner) = match &found {
            Resolved::Relation(r) => super::alter::kind_and_owner(r),
            Resolved::Index(t, _) => ("index", t.def.owner),
            Resolved::Virtual(_) => ("table", BOOTSTRAP_ROLE),
        };
        let table = match &found {
            Resolved::Relation(Relation::Table(t)) | Resolved::Index(t, _) => Some(t.clone()),
            _ => None,
        };
        let tables = table.iter().map(|t| t.def.id).collect();
        if u.what == Upkept::Skipped {
            if let Some(why) = self.skipped(u.tag, &found, owner) {
                let message = format!("skipping \"{}\" --- {why}", found.name());
                self.say("WARNING", SqlState::WARNING, message, String::new());
                return Ok(vec![]);
            }
            if let Some(t) = &table {
                named_once(t, columns)?;
            }
            return Ok(tables);
        }
        let wanted = match u.what {
            Upkept::Index => "index",
            _ => "table",
        };
        if kind != wanted {
            return Err(self.wrong_kind(&found, wanted));
        }
        self.must_own(kind, found.name(), owner)?;
        Ok(tables)
    }

    /// Why VACUUM or ANALYZE skips it.
    fn skipped(&self, tag: &str, found: &Resolved, owner: Oid) -> Option<String> {
        let word = tag.to_lowercase();
        if !self.has_rights_of(owner) {
            return Some(match found {
                Resolved::Virtual(v) if SHARED.contains(&v.name()) => {
                    format!("only superuser can {word} it")
                }
                Resolved::Virtual(_) => format!("only superuser or database owner can {word} it"),
                _ => format!("only table or database owner can {word} it"),
            });
        }
        let table = matches!(
            found,
            Resolved::Relation(Relation::Table(_)) | Resolved::Virtual(_)
        );
        (!table).then(|| format!("cannot {word} non-tables or special system tables"))
    }

    fn tables_in(&self, namespace: Oid) -> Vec<Oid> {
        let tables = self.schema.tables();
        let own = tables.filter(|t| t.def.namespace == namespace);
        let mut all: Vec<Oid> = own.map(|t| t.def.id).collect();
        all.sort_unstable();
        all
    }
}

/// The columns are the table's, and no two are the same: 42703, 42701.
fn named_once(table: &Table, columns: &[Ident]) -> Result<()> {
    let mut seen = vec![];
    for c in columns {
        let name = catalog::fold(c);
        let of = format!("column \"{name}\" of relation \"{}\"", table.def.name);
        if table.column(&name).is_none() {
            let what = format!("{of} does not exist");
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, what));
        }
        if seen.contains(&name) {
            let what = format!("{of} appears more than once");
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, what));
        }
        seen.push(name);
    }
    Ok(())
}
