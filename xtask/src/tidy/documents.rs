//! Rules for everything that is read: no path or package host of one machine, links and names of functions that
//! lead somewhere, decisions in order, README's examples as CI builds them.
//!
//! Left out on purpose: links over the network (CI must not depend on other people's servers) and heading anchors.

use super::lexer::code_only;
use super::{Finding, Tree};

pub const RULES: &[fn(&Tree) -> Vec<Finding>] = &[
    machine_paths,
    package_hosts,
    links,
    names,
    decisions,
    examples,
];

/// Directories of the machines we happen to work on. Written in two halves so that this file passes its own rule.
const MACHINE: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/fa", "rm/"),
    concat!("/tmp/", "bash"),
];

/// The one registry a lock file may name.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Where decisions lie: `NNNN-title.md`, from 0001, without gaps.
const DECISIONS: &str = "docs/decisions/";

fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for (at, line) in file.text.lines().enumerate() {
            for path in MACHINE {
                // The same name inside a longer path, or below a variable, is not the directory at the root.
                let absolute = |i: usize| {
                    !line[..i].ends_with(|c: char| c.is_alphanumeric() || "_-.}/".contains(c))
                };
                if line.match_indices(path).any(|(i, _)| absolute(i)) {
                    let what = format!("names the machine path {path}");
                    findings.push(Finding::new(&file.path, at + 1, what));
                }
            }
        }
    }
    findings
}

fn package_hosts(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let lock = file.path.ends_with("Cargo.lock");
        let config = file.path.ends_with(".cargo/config.toml");
        let installs = file.path.ends_with("requirements.txt") || file.path.ends_with("pip.conf");
        for (at, line) in file.text.lines().enumerate() {
            let host = (lock && line.starts_with("source = ") && !line.contains(REGISTRY))
                || (config && (line.starts_with("[source") || line.starts_with("[registr")))
                || (installs && (line.contains("index-url") || line.contains("find-links")));
            if host {
                let what = "names a package host other than the public one";
                findings.push(Finding::new(&file.path, at + 1, what));
            }
        }
    }
    findings
}

fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("md") {
        let mut fenced = false;
        for (at, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            }
            if fenced {
                continue;
            }
            for target in targets(line) {
                if !leads_somewhere(tree, &file.path, target) {
                    let what = format!("the link `{target}` leads nowhere");
                    findings.push(Finding::new(&file.path, at + 1, what));
                }
            }
        }
    }
    findings
}

/// The targets of `[text](target)` in a line, code spans aside.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (i, span) in line.split('`').enumerate() {
        if i % 2 == 1 {
            continue;
        }
        for (at, _) in span.match_indices("](") {
            let rest = &span[at + 2..];
            if let Some(end) = rest.find(')') {
                found.push(rest[..end].split_whitespace().next().unwrap_or_default());
            }
        }
    }
    // A link whose text is a code span: [`x`](y) splits at the backticks into `](y)`, which the loop above sees.
    found
}

fn leads_somewhere(tree: &Tree, from: &str, target: &str) -> bool {
    let path = target.split('#').next().unwrap_or_default();
    if path.contains("://") || path.starts_with("mailto:") {
        return true;
    }
    if path.is_empty() {
        return target.starts_with('#') && target.len() > 1;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." if parts.pop().is_none() => return false,
            ".." => {}
            other => parts.push(other),
        }
    }
    let resolved = parts.join("/");
    let directory = format!("{resolved}/");
    let inside = |p: &str| p == resolved || p.starts_with(&directory);
    resolved.is_empty() || tree.files.iter().any(|f| inside(&f.path))
}

/// A code span `crates/….rs::function` names a function that stands in that file, and `crates/….rs` a file that is there.
fn names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("md") {
        for (at, line) in file.text.lines().enumerate() {
            for span in line.split('`').skip(1).step_by(2) {
                let (path, function) = match span.split_once("::") {
                    Some((path, function)) => (path, Some(function)),
                    None => (span, None),
                };
                if !path.starts_with("crates/") || !path.ends_with(".rs") || path.contains('*') {
                    continue;
                }
                let what = match tree.get(path) {
                    None => format!("names the file {path}, which is not there"),
                    Some(f) if function.is_some_and(|name| !defines(&f.text, name)) => {
                        format!("names `{span}`, and the file has no such function")
                    }
                    Some(_) => continue,
                };
                findings.push(Finding::new(&file.path, at + 1, what));
            }
        }
    }
    findings
}

fn defines(source: &str, function: &str) -> bool {
    let code = code_only(source);
    let mut words = code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let mut before = "";
    words.any(|word| {
        let found = before == "fn" && word == function;
        if !word.is_empty() {
            before = word;
        }
        found
    })
}

/// README's Rust is the source of `examples/library` word for word, headers aside, so what CI builds is what a reader copies.
fn examples(tree: &Tree) -> Vec<Finding> {
    const PAGE: &str = "README.md";
    let programs: Vec<(&str, &str)> = tree
        .with_extension("rs")
        .filter(|f| f.path.starts_with("examples/library/src/"))
        .map(|f| (f.path.as_str(), after_header(&f.text)))
        .collect();
    let page = tree.get(PAGE).map_or("", |f| &f.text);
    let shown: Vec<&str> = page
        .split("```rust\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or(rest))
        .collect();
    let mut findings = Vec::new();
    for block in &shown {
        if !programs.iter().any(|(_, program)| program == block) {
            let what = "shows Rust that is no program of examples/library";
            findings.push(Finding::new(PAGE, 0, what));
        }
    }
    for (path, program) in &programs {
        if !shown.contains(program) {
            findings.push(Finding::new(path, 0, "is not shown in README.md as it is"));
        }
    }
    findings
}

fn after_header(text: &str) -> &str {
    text.split_once("\n\n").map_or("", |(_, program)| program)
}

fn decisions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut next = 1u32;
    let names = tree.files.iter().filter_map(|f| {
        let name = f.path.strip_prefix(DECISIONS)?;
        (name != "README.md").then_some((f, name))
    });
    for (file, name) in names {
        let number = name
            .split_once('-')
            .filter(|(n, title)| n.len() == 4 && title.len() > 3 && title.ends_with(".md"))
            .and_then(|(n, _)| n.parse::<u32>().ok());
        match number {
            Some(n) if n == next => next += 1,
            Some(n) => {
                let what = format!("decision {n:04} stands where {next:04} is due");
                findings.push(Finding::new(&file.path, 0, what));
                next = n + 1;
            }
            None => findings.push(Finding::new(&file.path, 0, "is not named NNNN-title.md")),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree;

    #[test]
    fn a_machine_path_fails() {
        let path = format!("see {}main/x", MACHINE[0]);
        let url = format!("https://example.org{}x and ~/net{}", MACHINE[0], MACHINE[0]);
        assert_eq!(machine_paths(&tree(&[("a.md", &path)])).len(), 1);
        assert_eq!(machine_paths(&tree(&[("a.md", &url)])), []);
    }

    #[test]
    fn a_private_package_host_fails() {
        let lock = format!("source = \"{REGISTRY}\"\nsource = \"sparse+http://10.0.0.1/\"");
        let t = tree(&[
            ("Cargo.lock", &lock),
            (".cargo/config.toml", "[source.mirror]\n[alias]\n"),
            ("tests/requirements.txt", "--index-url http://x\npsycopg"),
        ]);
        assert_eq!(package_hosts(&t).len(), 3);
    }

    #[test]
    fn a_dead_link_fails() {
        let text = "[a](docs/b.md) [b](docs/) [c](docs/b.md#part) [`d`](./docs/b.md \"t\") [e](https://x.y)\n\
                    `[code](no.md)`\n```\n[code](no.md)\n```\n[up](../x) [gone](docs/no.md)";
        let found = links(&tree(&[("a.md", text), ("docs/b.md", "[back](../a.md)")]));
        let found: Vec<&str> = found.iter().map(|f| f.what.as_str()).collect();
        assert_eq!(
            found,
            [
                "the link `../x` leads nowhere",
                "the link `docs/no.md` leads nowhere"
            ]
        );
    }

    #[test]
    fn a_name_that_is_gone_fails() {
        let source = "//! fn gone() {}\npub async fn here<T>() {}\n";
        let check = |text: &str| {
            names(&tree(&[
                ("docs/design/a.md", text),
                ("crates/a/src/b.rs", source),
            ]))
            .len()
        };
        assert_eq!(check("`crates/a/src/b.rs::here`, `crates/a/src/b.rs`"), 0);
        assert_eq!(check("`crates/a/src/b.rs::gone`"), 1);
        assert_eq!(check("`crates/a/src/b.rs::her`"), 1);
        assert_eq!(
            check("x `crates/a/src/c.rs::here` y `crates/a/src/c.rs`"),
            2
        );
        assert_eq!(check("`cargo test` and `base::x`"), 0);
    }

    #[test]
    fn an_example_that_is_not_the_program_fails() {
        let page = |code: &str| format!("# x\n\n```rust\n{code}```\n");
        let program = ("examples/library/src/main.rs", "//! A.\n\nfn main() {}\n");
        let check = |page: &str| examples(&tree(&[("README.md", page), program])).len();
        assert_eq!(check(&page("fn main() {}\n")), 0);
        assert_eq!(check(&page("fn main() { }\n")), 2);
        assert_eq!(check("# x\n"), 1);
    }

    #[test]
    fn a_gap_a_double_and_a_nameless_decision_fail() {
        let names = |n: &[&str]| {
            let paths: Vec<String> = n.iter().map(|x| format!("{DECISIONS}{x}")).collect();
            let files: Vec<(&str, &str)> = paths.iter().map(|p| (p.as_str(), "")).collect();
            decisions(&tree(&files)).len()
        };
        assert_eq!(names(&["0001-a.md", "0002-b.md", "README.md"]), 0);
        assert_eq!(names(&["0001-a.md", "0003-b.md"]), 1);
        assert_eq!(names(&["0001-a.md", "0001-b.md"]), 1);
        assert_eq!(names(&["notes.md"]), 1);
    }
}
