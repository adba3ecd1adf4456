//! What statements and sessions take of memory, and the one bound for all of it.
//!
//! ```text
//! allocator ──took──▶ Meter of the thread ──every 64 KiB──▶ PROCESS ─── less what the rows take ──▶ Total (`memory.total`)
//!                        └── while a session's task runs: its Account ──look, every 64 KiB──▶ limit of the statement, Total
//! ```
//! The allocator itself draws from the account, so no buffer is outside of it: of the parser, the planner, the executor, the wire, the queues.
//! A thread has a [`Meter`], which no other thread touches. A session has an [`Account`]: it follows the session's task from thread to
//! thread ([`enter`]). A long loop calls [`check`], which costs two loads and a comparison until 64 KiB have been taken; who is about to take
//! much at once calls [`want`] first. Either gives 53200 when the statement has more than its limit, or when all have more than the
//! [`Total`] and this one has the most.
//!
//! Rows are not drawn from here but from `max_memory`: `store` says which of the bytes are theirs ([`are_rows`]), and writes run [`apart`].
//! A process without the counting allocator (a library's) has accounts that know only what [`want`] is told.
//!
//! Left out on purpose: memory of the allocator that no object has (its pages are given back by the server's clock), stacks, mapped files.

use crate::{Error, Result, SqlState};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicIsize, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// What a thread takes before it tells the process of it, and an account before it looks at its limits. Bytes.
const STEP: isize = 64 << 10;
/// How far all may be above the total before others than the largest are refused. Bytes.
const SLACK: i64 = 32 << 20;
/// Less than this is never worth a refusal because of the others. Bytes.
const SMALL: isize = 256 << 10;
/// This part of the total is for superusers only.
const SHARE: i64 = 16;
/// Ticks of the clock that the largest gets to give its memory back, before the next has to.
const PATIENCE: u64 = 20;

/// See the head of the file. All in bytes.
struct Meter {
    /// Taken by this thread less given back by it.
    taken: Cell<isize>,
    /// What of it the process knows.
    told: Cell<isize>,
    /// `taken` when the account that runs here stood at nothing.
    zero: Cell<isize>,
    /// `taken` at which [`check`] looks closer.
    next: Cell<isize>,
    /// Bytes that [`want`] has granted here and that the process has not been told of yet.
    granted: Cell<isize>,
}

thread_local! {
    static METER: Meter = const {
        Meter {
            taken: Cell::new(0),
            told: Cell::new(0),
            zero: Cell::new(0),
            next: Cell::new(isize::MAX),
            granted: Cell::new(0),
        }
    };
    static RUNS: RefCell<Option<Arc<Account>>> = const { RefCell::new(None) };
}

#[repr(align(64))]
struct Line(AtomicI64);

/// Bytes of all threads, rows included.
static PROCESS: Line = Line(AtomicI64::new(0));

/// Bytes that [`want`] has granted and that are not taken yet. Without them, threads that ask at the same time would each find the room that is there
/// once.
static GRANTED: Line = Line(AtomicI64::new(0));

/// No thread is granted more than this, so that the sum does not overflow. Bytes.
const MOST_GRANTED: isize = 1 << 40;

/// Sets what this thread was granted.
fn grant(m: &Meter, bytes: isize) {
    let before = m.granted.replace(bytes);
    if before != bytes {
        GRANTED.0.fetch_add((bytes - before) as i64, Relaxed);
    }
}

/// For the allocator: the thread takes bytes (positive) or gives them back (negative). True: the process is to be told ([`flush`]), which
/// is always so for twice [`STEP`].
#[inline]
pub fn count(bytes: isize) -> bool {
    METER.with(|m| {
        let taken = m.taken.get().wrapping_add(bytes);
        m.taken.set(taken);
        taken.wrapping_sub(m.told.get()).unsigned_abs() >= STEP as usize
    })
}

/// The same, and the process is told where it is to be.
#[inline]
pub fn took(bytes: isize) {
    if count(bytes) {
        flush();
    }
}

fn tell(m: &Meter) {
    let taken = m.taken.get();
    let more = taken - m.told.replace(taken);
    PROCESS.0.fetch_add(more as i64, Relaxed);
    grant(m, m.granted.get() - more.clamp(0, m.granted.get()));
}

/// The process knows of all that this thread took. Also for the end of a thread.
#[cold]
pub fn flush() {
    METER.with(tell);
}

/// Bytes that the process has taken, as far as its threads have told.
pub fn process() -> i64 {
    PROCESS.0.load(Relaxed)
}

/// For the store: so many of the bytes that the thread has taken (or given back) are the rows' and belong to no account.
#[inline]
pub fn are_rows(bytes: isize) {
    METER.with(|m| {
        m.zero.set(m.zero.get().wrapping_add(bytes));
        m.next.set(moved(m.next.get(), bytes));
    });
}

/// A threshold, as far away as it was. That there is none stays.
#[inline]
fn moved(next: isize, by: isize) -> isize {
    match next {
        isize::MAX => isize::MAX,
        next => next.saturating_add(by),
    }
}

/// Does what takes memory for the database and not for the statement: rows, entries of indexes, the transaction's own lists.
#[inline]
pub fn apart<R>(f: impl FnOnce() -> R) -> R {
    let (taken, before, next) = METER.with(|m| (m.taken.get(), mine(), m.next.replace(isize::MAX)));
    let r = f();
    METER.with(|m| {
        are_rows(mine().wrapping_sub(before));
        let more = m.taken.get().wrapping_sub(taken);
        m.next.set(moved(next, more));
    });
    r
}

/// What the account that runs here has taken so far. Bytes.
pub fn mine() -> isize {
    METER.with(|m| m.taken.get().wrapping_sub(m.zero.get()))
}

/// 53200 when the statement that runs here has taken too much. For loops; see the head of the file.
#[inline]
pub fn check() -> Result<()> {
    match METER.with(|m| m.taken.get() < m.next.get()) {
        true => Ok(()),
        false => look(0),
    }
}

/// 53200 when the statement that runs here may not take so many bytes more at once.
#[inline]
pub fn want(bytes: usize) -> Result<()> {
    match bytes < STEP as usize {
        true => check(),
        false => look(bytes),
    }
}

#[cold]
fn look(more: usize) -> Result<()> {
    // Apart, or nothing runs.
    if METER.with(|m| m.next.get()) == isize::MAX {
        return Ok(());
    }
    RUNS.with_borrow(|runs| match runs {
        Some(account) => account.look(more),
        None => Ok(()),
    })
}

/// The account that runs here.
pub fn current() -> Option<Arc<Account>> {
    RUNS.with_borrow(Option::clone)
}

/// From here to the end of what this gives, what the thread takes is this account's. The thread has the account meanwhile, so that nothing
/// is counted up and down for each turn of a task. Not to be nested, nor held across a wait.
pub fn enter(account: &mut Option<Arc<Account>>) -> Entered<'_> {
    if let Some(account) = account {
        METER.with(|m| {
            let taken = m.taken.get();
            m.zero.set(taken.wrapping_sub(account.used.load(Relaxed)));
            m.next.set(taken.saturating_add(STEP));
        });
    }
    RUNS.set(account.take());
    Entered(account)
}

/// See [`enter`].
pub struct Entered<'a>(&'a mut Option<Arc<Account>>);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        *self.0 = RUNS.take();
        if let Some(account) = self.0 {
            account.used.store(mine(), Relaxed);
        }
        METER.with(|m| {
            m.next.set(isize::MAX);
            grant(m, 0);
        });
    }
}

/// An error when the statement of the account that runs here was asked to end ([`Account::ends_by`]).
pub fn check_ended() -> Result<()> {
    RUNS.with_borrow(|runs| match runs {
        Some(account) => account.ends().as_ref().map_or(Ok(()), |ends| ends()),
        None => Ok(()),
    })
}

/// What is done to an account's owner that has the most when all have too much.
pub type Victim = Box<dyn Fn(&Account) + Send + Sync>;

/// Whether the account's statement was asked to end: an error.
pub type Ends = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// What one session takes; see the head of the file. All in bytes.
pub struct Account {
    total: Arc<Total>,
    /// At the last look, or the last end of its turn on a thread.
    used: AtomicIsize,
    /// What stays when no statement runs: prepared statements.
    kept: AtomicIsize,
    /// `used`, less what was kept, when the statement began; and its limit.
    start: AtomicIsize,
    limit: AtomicIsize,
    /// A superuser's, who may go into the share.
    privileged: AtomicBool,
    victim: OnceLock<Victim>,
    ends: Mutex<Option<Ends>>,
}

/// See [`Account::ends_by`].
pub struct Asks<'a>(&'a Account);

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        *self.0.ends() = None;
    }
}

impl Account {
    /// What it has taken. Of one that runs now: some KiB old.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed).max(0) as u64
    }

    /// Whom to tell that it has to give its memory back. Once.
    pub fn on_victim(&self, f: Victim) {
        _ = self.victim.set(f);
    }

    fn ends(&self) -> MutexGuard<'_, Option<Ends>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While this lives, [`check_ended`] asks `f` wherever the account runs.
    pub fn ends_by(&self, f: Ends) -> Asks<'_> {
        *self.ends() = Some(f);
        Asks(self)
    }

    pub fn set_privileged(&self, on: bool) {
        self.privileged.store(on, Relaxed);
    }

    /// A statement begins that may take so much. On the thread where the account runs, or where none does.
    #[inline]
    pub fn begin(&self, limit: u64) {
        let start = mine().wrapping_sub(self.kept.load(Relaxed));
        self.start.store(start, Relaxed);
        self.limit
            .store(isize::try_from(limit).unwrap_or(isize::MAX), Relaxed);
    }

    /// What the statement has taken since it began, by what the thread knows. Where the account runs.
    pub fn taken(&self) -> isize {
        let start = self.start.load(Relaxed);
        mine() - start - self.kept.load(Relaxed)
    }

    /// So much more stays (or less) when no statement runs.
    pub fn keep(&self, bytes: isize) {
        self.kept.fetch_add(bytes, Relaxed);
    }

    /// No statement runs and no transaction is open: what was not given back has gone to the database, the log or a cache. On the thread
    /// where the account runs.
    #[inline]
    pub fn rest(&self) {
        let kept = self.kept.load(Relaxed);
        self.used.store(kept, Relaxed);
        METER.with(|m| m.zero.set(m.taken.get().wrapping_sub(kept)));
    }

    fn look(&self, more: usize) -> Result<()> {
        let used = mine();
        self.used.store(used, Relaxed);
        let more = isize::try_from(more).unwrap_or(isize::MAX);
        let (start, limit) = (self.start.load(Relaxed), self.limit.load(Relaxed));
        let taken = used.saturating_sub(start).saturating_add(more);
        if taken > limit {
            self.total.refused.fetch_add(1, Relaxed);
            return Err(statement_error(limit as u64));
        }
        // What was granted before was taken, or will not be. All see this before it is judged, so that two do not find the same room.
        METER.with(|m| grant(m, more.min(MOST_GRANTED)));
        self.total
            .judge(self, more)
            .inspect_err(|_| METER.with(|m| grant(m, 0)))?;
        // Looked at again after a step, or where the statement would be above its limit.
        let step = STEP.min(limit.saturating_sub(taken).saturating_add(1));
        METER.with(|m| m.next.set(m.taken.get().saturating_add(step)));
        Ok(())
    }

    fn tell_victim(&self) {
        if let Some(tell) = self.victim.get() {
            self.total.refused.fetch_add(1, Relaxed);
            tell(self);
        }
    }
}

/// 53200 of a statement that is above its own limit.
pub fn statement_error(limit: u64) -> Error {
    Error::new(SqlState::OUT_OF_MEMORY, "out of memory").detail(format!(
        "The statement needs more than canon.statement_memory allows it, which is {limit} bytes."
    ))
}

/// 53200 of the statement that has the most when all are above the total.
pub fn total_error() -> Error {
    Error::new(SqlState::OUT_OF_MEMORY, "out of memory")
        .detail("All statements and sessions have reached memory.total, and this one has the most.")
        .hint("Let it take less, let fewer run at a time, or raise memory.total.")
}

/// The bound of all accounts of a server, and of what else its process takes beside the rows.
pub struct Total {
    limit: AtomicI64,
    /// What of the process's bytes is the rows'.
    rows: AtomicI64,
    accounts: Mutex<Vec<Weak<Account>>>,
    /// Statements that got 53200.
    pub refused: AtomicU64,
    ticks: AtomicU64,
    /// The tick at which the largest was last told.
    told: AtomicU64,
}

impl Default for Total {
    fn default() -> Total {
        Total {
            limit: AtomicI64::new(i64::MAX),
            rows: AtomicI64::new(0),
            accounts: Mutex::default(),
            refused: AtomicU64::new(0),
            ticks: AtomicU64::new(PATIENCE),
            told: AtomicU64::new(0),
        }
    }
}

impl Total {
    /// Sets the limit (`memory.total`).
    pub fn set_limit(&self, bytes: u64) {
        self.limit
            .store(i64::try_from(bytes).unwrap_or(i64::MAX), Relaxed);
    }

    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed) as u64
    }

    /// What all take beside the rows. Bytes.
    pub fn used(&self) -> u64 {
        (process() - self.rows.load(Relaxed)).max(0) as u64
    }

    /// An account that has nothing yet.
    pub fn account(self: &Arc<Total>) -> Arc<Account> {
        let account = Arc::new(Account {
            total: self.clone(),
            used: AtomicIsize::new(0),
            kept: AtomicIsize::new(0),
            start: AtomicIsize::new(0),
            limit: AtomicIsize::new(isize::MAX),
            privileged: AtomicBool::new(false),
            victim: OnceLock::new(),
            ends: Mutex::default(),
        });
        let mut all = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        // Half of them are alive, at least.
        if all.len() == all.capacity() {
            all.retain(|a| a.strong_count() > 0);
            let room = all.len() + 16;
            all.reserve(room);
        }
        all.push(Arc::downgrade(&account));
        account
    }

    fn accounts(&self) -> Vec<Arc<Account>> {
        let all = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// What those may take together that are not superusers'.
    fn common(&self) -> i64 {
        let limit = self.limit.load(Relaxed);
        limit - limit / SHARE
    }

    /// Refuses the largest, where all together are above the limit; `account` is about to take `more`, which it was granted.
    fn judge(&self, account: &Account, more: isize) -> Result<()> {
        let used = process() + GRANTED.0.load(Relaxed) - self.rows.load(Relaxed);
        let privileged = account.privileged.load(Relaxed);
        let limit = match privileged {
            true => self.limit.load(Relaxed),
            false => self.common(),
        };
        let own = account.used.load(Relaxed).saturating_add(more);
        if used <= limit || own < SMALL {
            return Ok(());
        }
        let all = self.accounts();
        let others = all.iter().filter(|a| !std::ptr::eq(&***a, account));
        let largest = others.max_by_key(|a| a.used.load(Relaxed));
        match largest {
            Some(l) if l.used.load(Relaxed) > own && used - SLACK <= limit => {
                self.tell(l);
                Ok(())
            }
            _ => {
                self.refused.fetch_add(1, Relaxed);
                Err(total_error())
            }
        }
    }

    /// Tells the largest, unless one was told a moment ago.
    fn tell(&self, largest: &Account) {
        let now = self.ticks.load(Relaxed);
        let last = self.told.load(Relaxed);
        if now >= last + PATIENCE
            && self
                .told
                .compare_exchange(last, now, Relaxed, Relaxed)
                .is_ok()
        {
            largest.tell_victim();
        }
    }

    /// For a clock, every few milliseconds: how many of the process's bytes are the rows'. Tells the largest when all have too much.
    pub fn tick(&self, rows: u64) {
        self.rows.store(rows as i64, Relaxed);
        self.ticks.fetch_add(1, Relaxed);
        let above = self.used() as i64 - self.common();
        if above <= 0 {
            return;
        }
        let all = self.accounts();
        let common = all.iter().filter(|a| !a.privileged.load(Relaxed));
        let largest = common.max_by_key(|a| a.used.load(Relaxed));
        if let Some(largest) = largest.filter(|l| l.used.load(Relaxed) >= SMALL) {
            self.tell(largest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(r: Result<()>) -> Option<SqlState> {
        r.err().map(|e| e.code())
    }

    #[test]
    fn a_statement_has_its_limit_and_the_next_begins_anew() {
        let account = Arc::new(Total::default()).account();
        let mut turn = Some(account.clone());
        let _inside = enter(&mut turn);
        account.begin(1 << 20);
        took(1 << 20);
        assert_eq!(code(check()), None);
        assert_eq!(code(want(1 << 20)), Some(SqlState::OUT_OF_MEMORY));
        took(1);
        assert_eq!(code(check()), Some(SqlState::OUT_OF_MEMORY));
        account.begin(1 << 20);
        assert_eq!(code(want(1 << 20)), None);
        took(-(1 << 20) - 1);
    }

    /// Sixteen threads ask at the same time for more than there is for one of two. What all were granted stays below the limit.
    #[test]
    fn what_was_granted_counts_before_it_is_taken() {
        const EACH: usize = 60 << 20;
        let total = Arc::new(Total::default());
        total.set_limit((process().max(0) as u64) + (512 << 20));
        let (asked, done) = (std::sync::Barrier::new(16), std::sync::Barrier::new(16));
        let granted = AtomicU64::new(0);
        std::thread::scope(|s| {
            for _ in 0..16 {
                s.spawn(|| {
                    let account = total.account();
                    let mut turn = Some(account.clone());
                    let inside = enter(&mut turn);
                    account.begin(1 << 30);
                    asked.wait();
                    if want(EACH).is_ok() {
                        granted.fetch_add(1, Relaxed);
                    }
                    done.wait();
                    drop(inside);
                });
            }
        });
        let granted = granted.into_inner();
        // Other tests of this process take and grant a little beside it.
        assert!((1..=9).contains(&granted), "{granted} × 60 MB of 512 MB");
        let mut turn = Some(total.account());
        let _inside = enter(&mut turn);
        assert_eq!(code(want(EACH)), None, "it is free again");
    }

    #[test]
    fn what_is_kept_counts_for_each_statement_and_the_rest_does_not_stay() {
        let account = Arc::new(Total::default()).account();
        let mut turn = Some(account.clone());
        let inside = enter(&mut turn);
        account.begin(1 << 20);
        took(900 << 10);
        account.keep(500 << 10);
        account.rest();
        assert_eq!(mine(), 500 << 10);
        account.begin(1 << 20);
        assert_eq!(code(want(400 << 10)), None);
        assert_eq!(code(want(600 << 10)), Some(SqlState::OUT_OF_MEMORY));
        drop(inside);
        assert_eq!(account.used(), 500 << 10);
        took(-(900 << 10));
    }

    #[test]
    fn what_runs_apart_has_no_limit_however_deep() {
        let account = Arc::new(Total::default()).account();
        let mut turn = Some(account.clone());
        let _inside = enter(&mut turn);
        account.begin(1 << 20);
        apart(|| {
            apart(|| took(-(1 << 10)));
            are_rows(-(1 << 10));
            assert_eq!(code(want(1 << 30)), None);
        });
        assert_eq!(code(want(1 << 30)), Some(SqlState::OUT_OF_MEMORY));
        took(1 << 10);
    }

    #[test]
    fn an_account_goes_from_thread_to_thread_and_rows_are_not_in_it() {
        let account = Arc::new(Total::default()).account();
        let on_a_thread = |bytes: isize, rows: isize| {
            std::thread::scope(|s| {
                s.spawn(|| {
                    let mut turn = Some(account.clone());
                    let _inside = enter(&mut turn);
                    took(bytes);
                    are_rows(rows);
                    apart(|| took(1 << 20));
                    took(-(1 << 20));
                    are_rows(-(1 << 20));
                });
            });
        };
        on_a_thread(10_000, 3_000);
        on_a_thread(-2_000, 0);
        assert_eq!(account.used(), 5_000);
        assert_eq!(mine(), 0);
    }

    /// The total is the process's, so the limit is set beside what other tests of this process have taken.
    #[test]
    fn above_the_total_the_largest_is_told_and_the_small_go_on() {
        use std::sync::atomic::AtomicUsize;
        let total = Arc::new(Total::default());
        let (small, large) = (total.account(), total.account());
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        large.on_victim(Box::new(move |_| {
            count.fetch_add(1, Relaxed);
        }));
        {
            let mut turn = Some(large.clone());
            let _inside = enter(&mut turn);
            took(64 << 20);
        }
        // What is common to all ends some megabytes below what they have.
        total.set_limit(1 << 40);
        total.tick(0);
        assert_eq!(told.load(Relaxed), 0);
        let used = total.used() as i64;
        total.limit.store((used - (8 << 20)) * 16 / 15, Relaxed);
        {
            let mut turn = Some(small.clone());
            let _inside = enter(&mut turn);
            assert_eq!(code(want(1 << 20)), None);
        }
        assert_eq!(told.load(Relaxed), 1);
        // It has time to give its memory back.
        total.tick(0);
        assert_eq!(told.load(Relaxed), 1);
        (0..PATIENCE).for_each(|_| total.tick(0));
        assert_eq!(told.load(Relaxed), 2);
        {
            let mut turn = Some(large.clone());
            let _inside = enter(&mut turn);
            assert_eq!(code(want(1 << 20)), Some(SqlState::OUT_OF_MEMORY));
            took(-(64 << 20));
        }
        assert_eq!(large.used(), 0);
    }
}
