//! `canon set-aside`: looks at what a node set aside, and puts it back.
//!
//! ```text
//! list    the files: how many commits, rows, changes of the schema
//! show    group by group and commit by commit: table, key, columns
//! apply   commit by commit at the primary; a dry run, unless --yes
//! ```
//! The files are read where they lie, in a node's data directory or in a copy of it; the node may run meanwhile.
//! [`apply`] says how commits are put back.
//!
//! Left out on purpose: a way to put back changes of the schema, roles, and the state of sequences. They are shown.

mod apply;
mod text;

use base::{Error, Result, SqlState};
use node::aside::{Aside, read};
use std::path::{Path, PathBuf};
use text::Texts;
use wal::aside::{AsideFiles, AsideName};

/// What is asked.
#[derive(clap::Subcommand)]
pub enum Command {
    /// What was set aside in a data directory
    List {
        #[command(flatten)]
        place: Directory,
    },
    /// The commits of one of them, in words
    Show {
        #[command(flatten)]
        place: Directory,
        #[command(flatten)]
        which: Which,
    },
    /// Put commits back, at the primary; without --yes nothing is changed
    ///
    /// Each commit becomes one transaction of the role that logs in, with its rights and under all constraints. A commit is put back whole or
    /// not at all: it conflicts if one of its rows no longer stands as it did before, or if a constraint forbids it. If any commit conflicts,
    /// nothing is put back, unless --skip-conflicts or --take says what to do. What is there already is left alone, so a second run changes
    /// nothing.
    Apply {
        #[command(flatten)]
        place: Directory,
        #[command(flatten)]
        which: Which,
        /// The primary: HOST:PORT, or a connection string with a role and its password (else PGPASSWORD)
        #[arg(long, value_name = "SERVER")]
        server: String,
        /// Put back; without it the commits are tried and rolled back
        #[arg(long)]
        yes: bool,
        /// Leave out commits that conflict, and put back the others
        #[arg(long)]
        skip_conflicts: bool,
        /// In this table take the rows that were set aside, whatever stands there now; may be given several times
        #[arg(long, value_name = "TABLE")]
        take: Vec<String>,
    },
}

/// Where the files are.
#[derive(clap::Args)]
pub struct Directory {
    /// The data directory of the node that set them aside, or a copy of it
    #[arg(long, value_name = "DIR", env = "CANON_DATA")]
    data: PathBuf,
}

/// One of several.
#[derive(clap::Args)]
pub struct Which {
    /// Its name, as `list` prints it; not needed where there is one
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

fn files(place: &Directory) -> Result<Vec<AsideFiles>> {
    if !place.data.join("CANON_VERSION").exists() && !place.data.join("set-aside").exists() {
        let what = format!("{} is no data directory of Canon", place.data.display());
        return Err(wrong(what));
    }
    let disk = env::Env::os().disk;
    wal::aside::list(&*disk, &place.data).map_err(|e| Error::new(SqlState::IO_ERROR, e.to_string()))
}

fn one(place: &Directory, which: &Which) -> Result<Aside> {
    let all = files(place)?;
    let found = match &which.name {
        Some(name) => {
            let name = Path::new(name).file_name().unwrap_or_default();
            let name = name.to_string_lossy();
            let stem = [".log", ".txt", ".base", ".ckpt"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap_or(&name);
            let wanted = AsideName::parse(stem);
            all.into_iter().find(|a| Some(a.name) == wanted)
        }
        None if all.len() > 1 => {
            let names: Vec<String> = all.iter().map(|a| a.name.to_string()).collect();
            let what = format!("there are several, say which: {}", names.join(", "));
            return Err(wrong(what));
        }
        None => all.into_iter().next(),
    };
    let none = || {
        let what = format!(
            "nothing of that name was set aside in {}",
            place.data.display()
        );
        wrong(what).hint("'canon set-aside list' prints what there is.")
    };
    read(&*env::Env::os().disk, &found.ok_or_else(none)?)
}

/// Does what is asked. False: `apply` found conflicts.
pub fn run(command: &Command) -> Result<bool> {
    match command {
        Command::List { place } => list(place).map(|()| true),
        Command::Show { place, which } => {
            let aside = one(place, which)?;
            print!("{}", shown(&aside));
            Ok(true)
        }
        Command::Apply {
            place,
            which,
            server,
            yes,
            skip_conflicts,
            take,
        } => {
            let aside = one(place, which)?;
            let how = apply::How {
                yes: *yes,
                skip_conflicts: *skip_conflicts,
                take: take.clone(),
            };
            let server = protocol::Conninfo::parse(server)
                .map_err(|why| wrong(format!("--server {server}: {why}")))?;
            service::runtime()?.block_on(apply::run(&aside, &server, &how))
        }
    }
}

fn list(place: &Directory) -> Result<()> {
    let all = files(place)?;
    if all.is_empty() {
        println!("nothing was set aside in {}", place.data.display());
        return Ok(());
    }
    let disk = env::Env::os().disk;
    println!(
        "{:<16} {:>6} {:>12} {:>12} {:>8} {:>8} {:>8}  can be put back",
        "name", "term", "after", "last", "commits", "rows", "schema"
    );
    for f in &all {
        let a = read(&*disk, f)?;
        let last = a.commits.last().map_or(f.name.after, |c| c.position);
        let schema: usize = a.commits.iter().map(|c| c.schema.len()).sum();
        let commits = a.commits.iter().filter(|c| !c.writes.is_empty()).count();
        let words = match (&a.schema, a.partial) {
            (None, _) => "no: there is no base, an older version set it aside",
            (_, true) => "in part: of some commits only a checkpoint's rows are left",
            _ => "yes",
        };
        println!(
            "{:<16} {:>6} {:>12} {:>12} {:>8} {:>8} {:>8}  {words}",
            f.name.to_string(),
            f.name.term,
            f.name.after.to_string(),
            last.to_string(),
            commits,
            a.rows(),
            schema
        );
    }
    Ok(())
}

/// All of one in words.
fn shown(a: &Aside) -> String {
    let texts = Texts::new(a);
    let mut out = format!(
        "{}: commits above position {}, where term {} began elsewhere\n",
        a.name, a.name.after, a.name.term
    );
    let mut group = None;
    for c in &a.commits {
        if group != Some(c.group) {
            group = Some(c.group);
            out += &match c.group {
                Some(n) => format!("group {n} of {}\n", a.groups),
                None => "rows that a checkpoint had of commits that the log had let go\n".into(),
            };
        }
        out += &format!("  commit {}\n", c.position);
        for s in &c.schema {
            out += &format!("    {s} (never put back)\n");
        }
        for (name, upto) in &c.sequences {
            out += &format!("    sequence {name} was drawn up to {upto} (never put back)\n");
        }
        for w in &c.writes {
            out += &format!("    {}\n", texts.describe(*w));
        }
    }
    out
}
