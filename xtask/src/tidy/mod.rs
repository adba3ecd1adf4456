//! The house check: what the compiler does not hold, held by a test.
//!
//! A rule is a pure function from the tree (paths and texts, plus `cargo metadata` for the arrows) to findings, so each
//! has a unit test that shows it failing. The tree is what git would commit: tracked files and new ones not ignored.
//! Numbers only go down: an exception is a line in a table here, and the tables are best empty.
//!
//! Left out on purpose: anything clippy, rustfmt or rustc can say.

mod arrows;
mod documents;
mod functions;
mod lexer;
mod modules;
mod source;

use crate::{Result, command, metadata};

/// The files of the tree, in path order; paths are relative to the root, with `/`.
pub struct Tree {
    pub files: Vec<File>,
}

/// One text file.
pub struct File {
    pub path: String,
    pub text: String,
}

/// One thing that is wrong; `line` counts from 1, 0 means the file as a whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: path.into(),
            line,
            what: what.into(),
        }
    }
}

pub fn main(args: &[String]) -> Result<()> {
    match args {
        [] => {}
        [one] if one == "--arrows" => {
            modules::print(&Tree::read()?);
            return Ok(());
        }
        [one] if one == "--long" => {
            functions::print(&Tree::read()?);
            return Ok(());
        }
        _ => return Err("tidy takes --arrows, --long or nothing".into()),
    }
    let findings = run()?;
    for f in &findings {
        println!("{}:{}: {}", f.path, f.line, f.what);
    }
    match findings.len() {
        0 => Ok(()),
        n => Err(format!("tidy: {n} findings")),
    }
}

/// Applies every rule to the checkout.
pub fn run() -> Result<Vec<Finding>> {
    let tree = Tree::read()?;
    let mut findings = arrows::check(&tree, &metadata::read()?);
    for rule in source::RULES.iter().chain(documents::RULES) {
        findings.extend(rule(&tree));
    }
    findings.extend(modules::check(&tree));
    findings.extend(functions::check(&tree));
    Ok(findings)
}

impl Tree {
    fn read() -> Result<Tree> {
        let root = command::root();
        let mut git = std::process::Command::new("git");
        git.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let names = command::output(git.current_dir(&root))?;
        let mut files = Vec::new();
        for path in names.split('\0').filter(|p| !p.is_empty()) {
            // A file deleted but not yet committed as such is gone; binary files are not ours to read.
            if let Ok(text) = std::fs::read_to_string(root.join(path)) {
                files.push(File {
                    path: path.into(),
                    text,
                });
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        if files.is_empty() {
            return Err("git lists no files here".into());
        }
        Ok(Tree { files })
    }

    fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }

    fn with_extension(&self, extension: &str) -> impl Iterator<Item = &File> {
        let end = format!(".{extension}");
        self.files.iter().filter(move |f| f.path.ends_with(&end))
    }
}

/// A tree in memory, for the rules' tests.
#[cfg(test)]
fn tree(files: &[(&str, &str)]) -> Tree {
    let file = |&(path, text): &(&str, &str)| File {
        path: path.into(),
        text: text.into(),
    };
    Tree {
        files: files.iter().map(file).collect(),
    }
}
