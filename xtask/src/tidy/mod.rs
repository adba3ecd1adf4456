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
mod prose;
mod source;
mod tree;

#[cfg(test)]
use tree::tree;
pub use tree::{Finding, Tree};

use crate::{Result, metadata};

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
        [one] if one == "--prose" => {
            prose::print(&Tree::read()?);
            return Ok(());
        }
        _ => return Err("tidy takes --arrows, --long, --prose or nothing".into()),
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
    findings.extend(prose::check(&tree));
    Ok(findings)
}
