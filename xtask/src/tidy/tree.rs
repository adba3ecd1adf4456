//! What a rule reads, the tree that git would commit, and what a rule finds.

use crate::{Result, command};

/// The files of the tree, in path order; paths are relative to the root, with `/`.
pub struct Tree {
    pub files: Vec<File>,
}

/// One file; the text of a binary one is empty.
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
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: path.into(),
            line,
            what: what.into(),
        }
    }
}

impl Tree {
    pub fn read() -> Result<Tree> {
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
            let text = match std::fs::read_to_string(root.join(path)) {
                Ok(text) => text,
                // A picture is there for links, and has nothing to read.
                Err(e) if e.kind() == std::io::ErrorKind::InvalidData => String::new(),
                // A file deleted but not yet committed as such is gone.
                Err(_) => continue,
            };
            files.push(File {
                path: path.into(),
                text,
            });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        if files.is_empty() {
            return Err("git lists no files here".into());
        }
        Ok(Tree { files })
    }

    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }

    pub fn with_extension(&self, extension: &str) -> impl Iterator<Item = &File> {
        let end = format!(".{extension}");
        self.files.iter().filter(move |f| f.path.ends_with(&end))
    }
}

/// A tree in memory, for the rules' tests.
#[cfg(test)]
pub fn tree(files: &[(&str, &str)]) -> Tree {
    let file = |&(path, text): &(&str, &str)| File {
        path: path.into(),
        text: text.into(),
    };
    Tree {
        files: files.iter().map(file).collect(),
    }
}
