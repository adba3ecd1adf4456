//! Functions that have grown too long to read on one screen or two.
//!
//! A function counts from the line of its `fn` to its closing brace. Over `LONGEST` lines it is a finding, unless
//! `functions.txt` has it with the length that it may not pass. That list may only shrink: a function that became
//! shorter, or is gone, has to leave it or to lower its number.
//!
//! Left out on purpose: closures and macros, which belong to the function around them; tests.

use super::lexer::code_only;
use super::{Finding, Tree};
use std::collections::BTreeMap;

const LIST: &str = "xtask/src/tidy/functions.txt";

/// Lines.
const LONGEST: usize = 100;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let listed = tree.get(LIST).map_or("", |f| &f.text);
    ratchet(listed, &long(tree))
}

/// The functions over the limit: `file function` and the lines of the longest of that name in the file.
fn long(tree: &Tree) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for file in tree.with_extension("rs") {
        let Some((_, inner)) = file.path.split_once("/src/") else {
            continue;
        };
        if inner.split(['/', '.']).any(|p| p == "tests") {
            continue;
        }
        for (name, lines) in functions(&code_only(&file.text)) {
            if lines > LONGEST {
                let most = found.entry(format!("{} {name}", file.path)).or_insert(0);
                *most = lines.max(*most);
            }
        }
    }
    found
}

/// The functions of a file with their lengths in lines.
fn functions(code: &str) -> Vec<(String, usize)> {
    // An open function: its name, the depth of braces around it, its first line, whether its body has begun.
    let mut open: Vec<(String, usize, usize, bool)> = Vec::new();
    let (mut depth, mut all) = (0usize, Vec::new());
    for (at, line) in code.lines().enumerate() {
        let mut previous = "";
        let mut word_start = None;
        for (i, c) in line.char_indices().chain([(line.len(), ' ')]) {
            if c.is_alphanumeric() || c == '_' {
                word_start.get_or_insert(i);
                continue;
            }
            if let Some(start) = word_start.take() {
                let word = &line[start..i];
                if previous == "fn" {
                    open.push((word.to_owned(), depth, at, false));
                }
                previous = word;
            }
            if !c.is_whitespace() {
                // `fn(u8)` is a type.
                previous = "";
            }
            match c {
                '{' => {
                    if let Some(f) = open.last_mut().filter(|f| f.1 == depth) {
                        f.3 = true;
                    }
                    depth += 1;
                }
                '}' => {
                    depth = depth.saturating_sub(1);
                    if open.last().is_some_and(|f| f.1 == depth && f.3) {
                        let (name, _, first, _) = open.pop().expect("just seen");
                        all.push((name, at - first + 1));
                    }
                }
                // A declaration without a body.
                ';' if open.last().is_some_and(|f| f.1 == depth && !f.3) => drop(open.pop()),
                _ => {}
            }
        }
    }
    all
}

fn ratchet(listed: &str, found: &BTreeMap<String, usize>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut limits = BTreeMap::new();
    for (at, line) in listed.lines().enumerate() {
        let Some((name, limit)) = line.rsplit_once(' ') else {
            continue;
        };
        let limit: usize = limit.parse().unwrap_or(0);
        limits.insert(name, limit);
        match found.get(name) {
            None => {
                let what = format!("`{name}` is short enough or gone: take it out of the list");
                findings.push(Finding::new(LIST, at + 1, what));
            }
            Some(lines) if *lines < limit => {
                let what = format!("`{name}` has {lines} lines now: lower the number");
                findings.push(Finding::new(LIST, at + 1, what));
            }
            Some(_) => {}
        }
    }
    for (name, lines) in found {
        let limit = limits.get(name.as_str()).copied().unwrap_or(LONGEST);
        if *lines > limit {
            let (file, function) = name.split_once(' ').expect("made so");
            let what = format!("`{function}` has {lines} lines, over the limit of {limit}");
            findings.push(Finding::new(file, 0, what));
        }
    }
    findings
}

/// The list as it would have to stand today.
pub fn print(tree: &Tree) {
    for (name, lines) in long(tree) {
        println!("{name} {lines}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_from_fn_to_brace() {
        let code = "trait T { fn a(&self); }\nfn b() -> X {\n  if x {\n }\n}\nimpl Y {\n fn c(\n f: fn(u8),\n ) {\n }\n}";
        let found = functions(code);
        assert_eq!(found, [("b".to_owned(), 4), ("c".to_owned(), 4)]);
    }

    #[test]
    fn a_longer_function_fails_and_so_does_a_stale_line() {
        let found = BTreeMap::from([("a.rs f".to_owned(), 120)]);
        assert_eq!(ratchet("a.rs f 120", &found), []);
        assert_eq!(ratchet("", &found).len(), 1);
        assert_eq!(ratchet("a.rs f 119", &found).len(), 1);
        assert_eq!(ratchet("a.rs f 121", &found).len(), 1);
        assert_eq!(ratchet("a.rs f 120\na.rs g 130", &found).len(), 1);
    }
}
