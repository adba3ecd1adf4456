//! Reads an isolation spec: what sets the tables up, sessions with their steps, and the orders in which the steps are run.
//!
//! ```text
//! setup { … }*  teardown { … }?  (session NAME  setup { … }?  (step NAME { … })+  teardown { … }?)+
//! (permutation (NAME | NAME(blocker, …))+)*
//! ```
//! A blocker is `*` (shown as waiting at once), a step (reported only after that one), or `STEP notices N` (only after so many notices
//! of that step's session). Without a permutation, all orders are run that keep the order within each session.
//!
//! Left out on purpose: a finding for steps that no permutation uses.

use crate::Result;

#[derive(Debug, PartialEq, Eq)]
pub struct Spec {
    pub setups: Vec<String>,
    pub teardown: Option<String>,
    pub sessions: Vec<Session>,
    permutations: Vec<Vec<Turn>>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Session {
    pub name: String,
    pub setup: Option<String>,
    pub teardown: Option<String>,
    pub steps: Vec<Step>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub name: String,
    pub sql: String,
}

/// A step's turn in a permutation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub session: usize,
    /// Of the session.
    pub step: usize,
    pub blockers: Vec<Blocker>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    Once,
    /// (session, step)
    Step(usize, usize),
    /// (session, notices)
    Notices(usize, u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// In double quotes: never a key word.
    Name(String),
    Sql(String),
    Number(u64),
    Sign(char),
}

impl Spec {
    pub fn step(&self, turn: &Turn) -> &Step {
        &self.sessions[turn.session].steps[turn.step]
    }

    pub fn permutations(&self) -> Vec<Vec<Turn>> {
        if !self.permutations.is_empty() {
            return self.permutations.clone();
        }
        let mut all = Vec::new();
        let mut taken = vec![0; self.sessions.len()];
        self.interleave(&mut taken, &mut Vec::new(), &mut all);
        all
    }

    fn interleave(&self, taken: &mut [usize], so_far: &mut Vec<Turn>, all: &mut Vec<Vec<Turn>>) {
        let mut done = true;
        for session in 0..self.sessions.len() {
            if taken[session] == self.sessions[session].steps.len() {
                continue;
            }
            done = false;
            so_far.push(Turn {
                session,
                step: taken[session],
                blockers: Vec::new(),
            });
            taken[session] += 1;
            self.interleave(taken, so_far, all);
            taken[session] -= 1;
            so_far.pop();
        }
        if done {
            all.push(so_far.clone());
        }
    }

    fn find(&self, name: &str) -> Result<(usize, usize)> {
        let places = self.sessions.iter().enumerate();
        let mut found = places.filter_map(|(s, session)| {
            let step = session.steps.iter().position(|step| step.name == name);
            step.map(|step| (s, step))
        });
        found.next().ok_or(format!("no step `{name}`"))
    }
}

/// The names of a schedule, in order.
pub fn in_order(schedule: &str) -> Vec<String> {
    let lines = schedule.lines().filter_map(|l| l.strip_prefix("test: "));
    lines
        .flat_map(|l| l.split_whitespace().map(String::from))
        .collect()
}

pub fn read(text: &str) -> Result<Spec> {
    let mut tokens = Tokens {
        all: tokens(text)?,
        at: 0,
    };
    let mut spec = Spec {
        setups: Vec::new(),
        teardown: None,
        sessions: Vec::new(),
        permutations: Vec::new(),
    };
    while tokens.key("setup") {
        spec.setups.push(tokens.sql()?);
    }
    if tokens.key("teardown") {
        spec.teardown = Some(tokens.sql()?);
    }
    while tokens.key("session") {
        let mut session = Session {
            name: tokens.name()?,
            setup: None,
            teardown: None,
            steps: Vec::new(),
        };
        if tokens.key("setup") {
            session.setup = Some(tokens.sql()?);
        }
        while tokens.key("step") {
            session.steps.push(Step {
                name: tokens.name()?,
                sql: tokens.sql()?,
            });
        }
        if tokens.key("teardown") {
            session.teardown = Some(tokens.sql()?);
        }
        spec.sessions.push(session);
    }
    while tokens.key("permutation") {
        let mut turns = Vec::new();
        while !tokens.is_at_key("permutation") && !tokens.is_done() {
            turns.push(tokens.turn(&spec)?);
        }
        spec.permutations.push(turns);
    }
    match tokens.all.get(tokens.at) {
        None if !spec.sessions.is_empty() => Ok(spec),
        other => Err(format!("not a spec: {other:?}")),
    }
}

struct Tokens {
    all: Vec<Token>,
    at: usize,
}

impl Tokens {
    fn is_done(&self) -> bool {
        self.at == self.all.len()
    }

    fn is_at_key(&self, key: &str) -> bool {
        matches!(self.all.get(self.at), Some(Token::Word(w)) if w == key)
    }

    fn key(&mut self, key: &str) -> bool {
        let there = self.is_at_key(key);
        self.at += usize::from(there);
        there
    }

    fn sign(&mut self, sign: char) -> bool {
        let there = self.all.get(self.at) == Some(&Token::Sign(sign));
        self.at += usize::from(there);
        there
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.all.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn sql(&mut self) -> Result<String> {
        match self.next() {
            Some(Token::Sql(sql)) => Ok(sql),
            other => Err(format!("SQL is due, not {other:?}")),
        }
    }

    fn name(&mut self) -> Result<String> {
        match self.next() {
            Some(Token::Word(name) | Token::Name(name)) => Ok(name),
            other => Err(format!("a name is due, not {other:?}")),
        }
    }

    fn turn(&mut self, spec: &Spec) -> Result<Turn> {
        let (session, step) = spec.find(&self.name()?)?;
        let mut blockers = Vec::new();
        if self.sign('(') {
            loop {
                blockers.push(self.blocker(spec)?);
                if !self.sign(',') {
                    break;
                }
            }
            if !self.sign(')') {
                return Err("`)` is due".into());
            }
        }
        Ok(Turn {
            session,
            step,
            blockers,
        })
    }

    fn blocker(&mut self, spec: &Spec) -> Result<Blocker> {
        if self.sign('*') {
            return Ok(Blocker::Once);
        }
        let (session, step) = spec.find(&self.name()?)?;
        if !self.key("notices") {
            return Ok(Blocker::Step(session, step));
        }
        match self.next() {
            Some(Token::Number(n)) => Ok(Blocker::Notices(session, n)),
            other => Err(format!("a number is due, not {other:?}")),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let until = |end: char| rest[1..].find(end).map(|n| n + 1);
        let taken = match first {
            c if c.is_whitespace() => c.len_utf8(),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '{' => {
                let end = until('}').ok_or("no end of SQL")?;
                // White space at both ends goes; an end of line stays.
                let blank = [' ', '\t', '\r'];
                let sql = rest[1..end].trim_start_matches(blank);
                all.push(Token::Sql(sql.trim_end_matches(blank).to_owned()));
                end + 1
            }
            '"' => {
                let end = until('"').ok_or("no end of a name")?;
                all.push(Token::Name(rest[1..end].to_owned()));
                end + 1
            }
            '(' | ')' | ',' | '*' => {
                all.push(Token::Sign(first));
                1
            }
            c if c.is_ascii_digit() => {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                all.push(Token::Number(digits.parse().map_err(|_| "a large number")?));
                digits.len()
            }
            c if c.is_alphabetic() || c == '_' => {
                let part = |c: &char| c.is_alphanumeric() || ['_', '$'].contains(c);
                let word: String = rest.chars().take_while(part).collect();
                let taken = word.len();
                all.push(Token::Word(word));
                taken
            }
            c => return Err(format!("`{c}` has no meaning in a spec")),
        };
        rest = &rest[taken..];
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# two sessions\nsetup { CREATE TABLE t (a int); }\nteardown\n{\n DROP TABLE t;\n}\n\
        session s1\nsetup { BEGIN; }\nstep a { SELECT 1; }\nstep \"session\" { COMMIT; }\nsession s2\nstep b\t{\n UPDATE t SET a = 1; }\n\
        teardown { COMMIT; }\n";

    #[test]
    fn a_spec_is_read() {
        let spec = read(&format!(
            "{TEXT}permutation a b(*) \"session\"\npermutation a b(a, a notices 2)"
        ))
        .unwrap();
        assert_eq!(spec.setups, ["CREATE TABLE t (a int);"]);
        assert_eq!(spec.teardown.as_deref(), Some("\n DROP TABLE t;\n"));
        assert_eq!(spec.sessions[1].steps[0].sql, "\n UPDATE t SET a = 1;");
        assert_eq!(spec.sessions[1].teardown.as_deref(), Some("COMMIT;"));
        let all = spec.permutations();
        assert_eq!(all[0].len(), 3);
        assert_eq!(all[0][1].blockers, [Blocker::Once]);
        assert_eq!(
            all[1][1].blockers,
            [Blocker::Step(0, 0), Blocker::Notices(0, 2)]
        );
    }

    #[test]
    fn without_permutations_all_orders_are_run() {
        let spec = read(TEXT).unwrap();
        let names = |turns: &Vec<Turn>| -> Vec<String> {
            turns.iter().map(|t| spec.step(t).name.clone()).collect()
        };
        let all: Vec<Vec<String>> = spec.permutations().iter().map(names).collect();
        assert_eq!(
            all,
            [
                ["a", "session", "b"],
                ["a", "b", "session"],
                ["b", "a", "session"]
            ]
        );
    }

    #[test]
    fn a_schedule_is_read_in_order() {
        let text = "# x\ntest: a\nignore: b\ntest: b c\n";
        assert_eq!(in_order(text), ["a", "b", "c"]);
    }

    #[test]
    fn what_is_no_spec_is_refused() {
        assert!(read("setup { x").is_err());
        assert!(read("session s step a { } permutation nothing").is_err());
        assert!(read("").is_err());
    }
}
