//! Different results that are decided, and why they stay: `decided.txt`.
//!
//! A line is `reason | file:lines …`. A place that is in no line is a finding.
//!
//! Left out on purpose: other versions of the suite, whose lines are others.

use crate::Result;
use std::collections::HashMap;

/// The reasons by file and line.
pub struct Decided(HashMap<(String, usize), &'static str>);

impl Decided {
    pub fn read() -> Result<Decided> {
        read(include_str!("decided.txt"))
    }

    pub fn reason(&self, file: &str, line: usize) -> Option<&'static str> {
        self.0.get(&(file.to_owned(), line)).copied()
    }
}

fn read(text: &'static str) -> Result<Decided> {
    let mut all = HashMap::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let wrong = || format!("decided.txt: {line}");
        let (reason, places) = line.split_once(" | ").ok_or_else(wrong)?;
        for place in places.split_whitespace() {
            let (file, numbers) = place.split_once(':').ok_or_else(wrong)?;
            for number in numbers.split(',') {
                let number = number.parse().map_err(|_| wrong())?;
                if all.insert((file.to_owned(), number), reason).is_some() {
                    return Err(format!("decided.txt: {file}:{number} twice"));
                }
            }
        }
    }
    Ok(Decided(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_reason() {
        assert!(Decided::read().is_ok());
        let d = read("# x\nso it is | a:1,2 b.c:3\n").unwrap();
        assert_eq!(d.reason("a", 2), Some("so it is"));
        assert_eq!(d.reason("b.c", 3), Some("so it is"));
        assert_eq!(d.reason("a", 3), None);
        assert!(read("one | a:1\ntwo | a:1").is_err());
        assert!(read("one a:1").is_err());
    }
}
