//! What has happened in a run, for a line at its end.
//!
//! Left out on purpose: what is right or wrong. [`super::rules`] says that.

/// What has happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub seeds: u64,
    /// Steps of tasks.
    pub steps: u64,
    pub messages: u64,
    pub acknowledged: usize,
    pub reads: u64,
    /// Terms of the consensus, and of the data, that had a leader.
    pub elections: usize,
    pub terms: usize,
    pub crashes: u64,
    pub blackouts: u64,
    pub pauses: u64,
    pub cuts: u64,
    pub handed_over: u64,
    pub degraded: u64,
    pub left: u64,
    pub joined: u64,
    /// Members that left while they led the consensus.
    pub leaders_left: u64,
    /// The longest time until a cluster was whole again, in milliseconds.
    pub whole_after: u64,
    /// Stands for all that has happened, in order.
    pub trace: u64,
}

impl Report {
    /// Adds another run.
    pub fn add(&mut self, other: &Report) {
        self.seeds += other.seeds;
        self.steps += other.steps;
        self.messages += other.messages;
        self.acknowledged += other.acknowledged;
        self.reads += other.reads;
        self.elections += other.elections;
        self.terms += other.terms;
        self.crashes += other.crashes;
        self.blackouts += other.blackouts;
        self.pauses += other.pauses;
        self.cuts += other.cuts;
        self.handed_over += other.handed_over;
        self.degraded += other.degraded;
        self.left += other.left;
        self.joined += other.joined;
        self.leaders_left += other.leaders_left;
        self.whole_after = self.whole_after.max(other.whole_after);
        self.trace ^= other.trace;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} clusters, {} steps, {} messages: {} writes acknowledged, {} strong reads; {} elections, {} terms, {} handed over, {} degraded; \
             {} crashes, {} blackouts, {} pauses, {} cuts; {} joined, {} left, {} as consensus leaders; whole after {} ms at most; trace {:016x}",
            self.seeds,
            self.steps,
            self.messages,
            self.acknowledged,
            self.reads,
            self.elections,
            self.terms,
            self.handed_over,
            self.degraded,
            self.crashes,
            self.blackouts,
            self.pauses,
            self.cuts,
            self.joined,
            self.left,
            self.leaders_left,
            self.whole_after,
            self.trace,
        )
    }
}
