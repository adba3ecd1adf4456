//! Runs isolation specs: steps of several sessions in a given order, with what each prints and which of them wait.
//!
//! ```text
//! setup ─▶ setup of each session ─▶ for each turn: send; done, or shown as waiting ─▶ teardowns
//! ```
//! A step waits when `pg_isolation_test_session_is_blocked` says so. A step that waits is reported later, once it is done and
//! its blockers allow it. The output has the form of PostgreSQL's tester, so it is compared with the expected files as a whole.
//!
//! What the output says is `judge`'s to decide.
//!
//! Left out on purpose: the cancel of a step that never ends. It ends the spec.

use super::judge::{self, Failed, Outcome, Ran};
use super::sessions::{Said, Session};
use super::spec::{self, Blocker, Spec, Turn};
use crate::{Result, guard::Guard, server, wire};
use std::path::Path;
use std::time::{Duration, Instant};

/// A step that has not ended by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks whether a step waits.
const LOOK: Duration = Duration::from_millis(10);

/// Runs the specs of the schedule, or those named, each at a server of its own: what a spec leaves behind is in the way of none.
pub fn all(
    suite: &Path,
    only: &[String],
    program: &Path,
    peer: &server::Server,
    directory: &Path,
    guard: &mut Guard,
) -> Result<Vec<Ran>> {
    let schedule = std::fs::read_to_string(suite.join("isolation_schedule"));
    let schedule = schedule.map_err(|e| format!("isolation_schedule: {e}"))?;
    let mut all = Vec::new();
    for name in spec::in_order(&schedule) {
        if !only.is_empty() && !only.contains(&name) {
            continue;
        }
        let place = directory.join(&name);
        std::fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
        let canon = server::canon(program, &place, guard)?;
        let ran = one(suite, &name, &canon, peer)?;
        drop(canon);
        // An error leaves files that the guard removes.
        let _ = std::fs::remove_dir_all(&place);
        println!("{:<32} {:?} {}", ran.name, ran.outcome, ran.note);
        all.push(ran);
    }
    Ok(all)
}

fn one(suite: &Path, name: &str, canon: &server::Server, peer: &server::Server) -> Result<Ran> {
    let path = suite.join("specs").join(format!("{name}.spec"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let spec = spec::read(&text).map_err(|e| format!("{name}: {e}"))?;
    let expected = expected(suite, name);
    let mut tester = Tester::open(&spec, name, canon)?;
    let done = tester.run();
    let output = std::mem::take(&mut tester.out);
    let ours = judge::Ours {
        output: &output,
        errors: std::mem::take(&mut tester.errors),
        states: std::mem::take(&mut tester.states),
    };
    drop(tester);
    let (outcome, note) = match done {
        Err(why) => (Outcome::Refused, why),
        Ok(()) => {
            let mut serial = Serial {
                name,
                peer,
                tester: None,
            };
            judge::judge(&spec, &ours, &expected, &mut serial)
        }
    };
    Ok(Ran {
        name: name.into(),
        outcome,
        note: note.lines().next().unwrap_or_default().into(),
        output,
    })
}

fn expected(suite: &Path, name: &str) -> Vec<String> {
    let names = std::iter::once(name.to_owned()).chain((1..=9).map(|n| format!("{name}_{n}")));
    let path = |n: String| suite.join("expected").join(format!("{n}.out"));
    names
        .filter_map(|n| std::fs::read_to_string(path(n)).ok())
        .collect()
}

/// Runs sessions one after the other at PostgreSQL.
struct Serial<'a> {
    name: &'a str,
    peer: &'a server::Server,
    tester: Option<Tester<'a>>,
}

impl<'a> judge::OneByOne<'a> for Serial<'a> {
    fn run(&mut self, spec: &'a Spec, turns: &[Turn]) -> Result<(String, Vec<String>)> {
        let mut tester = match self.tester.take() {
            Some(tester) => tester,
            None => Tester::open(spec, self.name, self.peer)?,
        };
        tester.out.clear();
        tester.states.clear();
        let done = tester.permutation(turns);
        let output = tester.out.clone();
        let state = tester.states.pop().unwrap_or_default();
        // After an error the sessions are in no known state.
        done?;
        self.tester = Some(tester);
        Ok((output, state))
    }
}

impl Drop for Serial<'_> {
    fn drop(&mut self) {
        self.tester = None;
        // What a failed run left is in the way of the next spec.
        let _ = self
            .peer
            .sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    }
}

struct Tester<'a> {
    spec: &'a Spec,
    /// Runs the setups of the spec.
    control: Session,
    /// Asks whether a session waits.
    watch: wire::Connection,
    sessions: Vec<Session>,
    /// The turn of each session that is sent and not reported.
    active: Vec<Option<Turn>>,
    /// For the active turns: the notices of other sessions that are due.
    due: Vec<Vec<(usize, u64)>>,
    waiting: Vec<usize>,
    out: String,
    errors: Vec<Failed>,
    /// The rows of all tables at the end of each permutation.
    states: Vec<Vec<String>>,
}

impl Tester<'_> {
    fn open<'a>(spec: &'a Spec, name: &str, canon: &server::Server) -> Result<Tester<'a>> {
        let watch = canon.connect().map_err(|e| e.to_string())?;
        let application = format!("isolation/{name}/control connection");
        let control = Session::open(canon.port, "control", &application)?;
        let open = |s: &spec::Session| {
            let application = format!("isolation/{name}/{}", s.name);
            Session::open(canon.port, &s.name, &application)
        };
        let sessions: Vec<Session> = spec.sessions.iter().map(open).collect::<Result<_>>()?;
        Ok(Tester {
            spec,
            control,
            watch,
            active: vec![None; sessions.len()],
            due: vec![Vec::new(); sessions.len()],
            waiting: Vec::new(),
            out: format!("Parsed test spec with {} sessions\n", sessions.len()),
            sessions,
            errors: Vec::new(),
            states: Vec::new(),
        })
    }

    /// Runs all permutations. An error: canon refuses the setup, or a step never ends.
    fn run(&mut self) -> Result<()> {
        for turns in self.spec.permutations() {
            self.permutation(&turns)?;
        }
        Ok(())
    }

    fn permutation(&mut self, turns: &[Turn]) -> Result<()> {
        let spec = self.spec;
        let names = turns.iter().map(|t| spec.step(t).name.as_str());
        let names = names.collect::<Vec<_>>().join(" ");
        self.out += &format!("\nstarting permutation: {names}\n");
        for sql in &spec.setups {
            self.global(sql).map_err(|e| format!("setup: {e}"))?;
        }
        for (i, session) in spec.sessions.iter().enumerate() {
            if let Some(sql) = &session.setup {
                self.aside(i, sql)?;
            }
        }
        for turn in turns {
            self.free(turn.session)?;
            self.send(turn);
            let waits = self.complete(turn.session, true, false)?;
            self.poll(true)?;
            if waits {
                self.waiting.push(turn.session);
            }
        }
        self.poll(false)?;
        if !self.waiting.is_empty() {
            return Err("steps wait for each other".into());
        }
        let state = self.state();
        self.states.push(state);
        for (i, session) in spec.sessions.iter().enumerate() {
            if let Some(sql) = &session.teardown {
                // As in PostgreSQL's tester, a teardown may fail.
                let _ = self.aside(i, sql);
            }
        }
        if let Some(sql) = &spec.teardown {
            let _ = self.global(sql);
        }
        Ok(())
    }

    /// The rows of all tables; empty where they cannot be read.
    fn state(&mut self) -> Vec<String> {
        let tables =
            "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = 'public' ORDER BY 1";
        let tables = self.watch.query(tables).unwrap_or_default().rows;
        let mut state = Vec::new();
        for table in tables.into_iter().flatten().flatten() {
            // A lock that a session still holds is not waited for.
            let read = format!("SET lock_timeout = 1000; SELECT * FROM public.\"{table}\"");
            let rows = self.watch.query(&read).unwrap_or_default().rows;
            let row = |r: &Vec<Option<String>>| format!("{table} {r:?}");
            state.extend(rows.iter().map(row));
        }
        state.sort();
        state
    }

    /// Runs a setup or a teardown of the spec. Its notices are not shown.
    fn global(&mut self, sql: &str) -> Result<()> {
        self.control.send(sql);
        let said = self.control.finish(PATIENCE)?;
        self.out += &last_table(&said)?;
        Ok(())
    }

    /// Runs a setup or a teardown of a session.
    fn aside(&mut self, i: usize, sql: &str) -> Result<()> {
        let session = &mut self.sessions[i];
        session.send(sql);
        let said = session.finish(PATIENCE)?;
        for s in &said {
            if let Said::Notice(text) = s {
                self.out += &format!("{}: {text}", session.name);
            }
        }
        self.out += &last_table(&said).map_err(|e| format!("setup of {}: {e}", session.name))?;
        Ok(())
    }

    /// Waits until the session has nothing that runs or is to be reported.
    fn free(&mut self, session: usize) -> Result<()> {
        let begun = Instant::now();
        while self.active[session].is_some() {
            if !self.complete(session, false, true)? {
                self.waiting.retain(|w| *w != session);
            }
            self.poll(true)?;
            if begun.elapsed() > 2 * PATIENCE {
                return Err("a step never ends".into());
            }
        }
        Ok(())
    }

    fn send(&mut self, turn: &Turn) {
        let due = turn.blockers.iter().filter_map(|b| match b {
            Blocker::Notices(s, n) => Some((*s, self.sessions[*s].notices + n)),
            _ => None,
        });
        self.due[turn.session] = due.collect();
        self.active[turn.session] = Some(turn.clone());
        self.sessions[turn.session].send(&self.spec.step(turn).sql);
    }

    /// Reports what has ended meanwhile. `nonblock`: leaves alone what waits.
    fn poll(&mut self, nonblock: bool) -> Result<()> {
        loop {
            let before = self.waiting.len();
            let notices = |t: &Self| t.sessions.iter().map(|s| s.notices).sum::<u64>();
            let noticed = notices(self);
            let mut blockers = false;
            for session in self.waiting.clone() {
                let turn = self.active[session].clone();
                match self.complete(session, nonblock, true)? {
                    true => blockers |= turn.is_some_and(|t| !t.blockers.is_empty()),
                    false => self.waiting.retain(|w| *w != session),
                }
            }
            let moved = self.waiting.len() < before || notices(self) > noticed;
            if !blockers || !moved {
                return Ok(());
            }
        }
    }

    /// Waits for the end of a session's step and reports it. `true`: it waits, or its blockers do not allow it yet.
    fn complete(&mut self, i: usize, nonblock: bool, again: bool) -> Result<bool> {
        let turn = self.active[i].clone().expect("sent before");
        let spec = self.spec;
        let step = spec.step(&turn);
        let waiting = format!("step {}: {} <waiting ...>\n", step.name, step.sql);
        if !again && turn.blockers.contains(&Blocker::Once) {
            self.out += &waiting;
            return Ok(true);
        }
        let begun = Instant::now();
        while self.sessions[i].is_busy(LOOK) {
            self.notices();
            if nonblock && self.is_blocked(i)? && self.sessions[i].is_busy(Duration::ZERO) {
                self.notices();
                if !again {
                    self.out += &waiting;
                }
                return Ok(true);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("step {} never ends", step.name));
            }
        }
        self.notices();
        if self.has_blocker(&turn) {
            if !again {
                self.out += &waiting;
            }
            return Ok(true);
        }
        self.out += &match again {
            true => format!("step {}: <... completed>\n", step.name),
            false => format!("step {}: {}\n", step.name, step.sql),
        };
        // A client shows what was notified behind the results, whatever came first.
        let all = self.sessions[i].take();
        let (notified, results): (Vec<Said>, Vec<Said>) = all
            .into_iter()
            .partition(|s| matches!(s, Said::Notification { .. }));
        for said in results.into_iter().chain(notified) {
            self.report(i, said);
        }
        self.active[i] = None;
        Ok(false)
    }

    /// Prints notices when they come, before the step is reported.
    fn notices(&mut self) {
        for session in &mut self.sessions {
            for text in session.take_notices() {
                self.out += &format!("{}: {text}", session.name);
            }
        }
    }

    fn has_blocker(&self, turn: &Turn) -> bool {
        let is_active =
            |s: usize, step: usize| self.active[s].as_ref().is_some_and(|t| t.step == step);
        let blocked = turn.blockers.iter().any(|b| match b {
            Blocker::Step(s, step) => is_active(*s, *step),
            _ => false,
        });
        let due = &self.due[turn.session];
        blocked || due.iter().any(|(s, n)| self.sessions[*s].notices < *n)
    }

    fn is_blocked(&mut self, i: usize) -> Result<bool> {
        let pids: Vec<String> = self.sessions.iter().map(|s| s.pid.to_string()).collect();
        let sql = format!(
            "SELECT pg_catalog.pg_isolation_test_session_is_blocked({}, '{{{}}}')",
            self.sessions[i].pid,
            pids.join(",")
        );
        let rows = self.watch.query(&sql).map_err(|e| e.to_string())?;
        Ok(rows
            .rows
            .first()
            .is_some_and(|r| r[0].as_deref() == Some("t")))
    }

    fn report(&mut self, i: usize, said: Said) {
        match said {
            Said::Table(table) => self.out += &table.print(),
            Said::Error {
                severity,
                code,
                message,
            } => {
                self.out += &format!("{severity}:  {message}\n");
                self.errors.push(Failed { code, message });
            }
            Said::Notice(text) => self.out += &format!("{}: {text}", self.sessions[i].name),
            Said::Notification {
                pid,
                channel,
                payload,
            } => {
                let from = self.sessions.iter().find(|s| s.pid == pid);
                let from = from.map_or(format!("PID {pid}"), |s| s.name.clone());
                self.out += &format!(
                    "{}: NOTIFY \"{channel}\" with payload \"{payload}\" from {from}\n",
                    self.sessions[i].name
                );
            }
            Said::Lost => {
                self.out += "server closed the connection unexpectedly\n\tThis probably means the server terminated abnormally\n\tbefore or while processing the request.\n\n";
            }
            Said::Key(_) | Said::Ready | Said::Done => {}
        }
    }
}

/// The rows of several statements, if the last one has any.
fn last_table(said: &[Said]) -> Result<String> {
    let mut last = String::new();
    for s in said {
        match s {
            Said::Error { code, message, .. } => return Err(format!("{code} {message}")),
            Said::Lost => return Err("the connection ended".into()),
            Said::Table(table) => last = table.print(),
            Said::Done => last.clear(),
            _ => {}
        }
    }
    Ok(last)
}
