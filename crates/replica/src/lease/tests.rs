//! Both sides step by step, and against a model: clocks that drift, messages that come late, twice, in any order or never, machines that stand still,
//! and a primary that begins anew.

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const TERM: u64 = 3;

fn p(n: u64) -> Position {
    Position::from_u64(n)
}

#[test]
fn the_holder_counts_from_sending_and_the_grantor_from_receiving() {
    let (mut holder, mut grantor) = (Holder::new(7), Grantor::default());
    let ask = holder.offered(SECOND);
    let came = SECOND + 100;
    assert_eq!(grantor.ask(ask, 1, p(5), came), Asked::Begins);
    grantor.begins(7, p(9));
    assert_eq!(
        holder.granted(ask.number, came + 100),
        Some(SECOND + LENGTH)
    );
    assert_eq!(
        holder.granted(ask.number, came + 100),
        None,
        "it counts once"
    );
    assert!(!grantor.is_over(SECOND + LENGTH) && grantor.ceiling(SECOND + LENGTH) == p(5));
    let over = came + GRANTED;
    assert_eq!(grantor.ceiling(over - 1), p(5));
    assert!(grantor.is_over(over) && grantor.ceiling(over) == Ceiling::NONE);
}

#[test]
fn a_lease_answers_from_its_first_position_to_its_end_and_in_its_term() {
    let held = Held::default();
    assert!(!held.may_answer(TERM, p(9), || 0), "none is held");
    held.hold(TERM, p(9), 100);
    assert!(held.may_answer(TERM, p(9), || 99));
    assert!(
        !held.may_answer(TERM, p(8), || 99),
        "something may be missing"
    );
    assert!(!held.may_answer(TERM, p(9), || 100), "it is over");
    assert!(!held.may_answer(TERM + 1, p(9), || 99) && !held.may_answer(0, p(9), || 99));
    held.hold(TERM, p(9), 200);
    assert!(held.may_answer(TERM, p(9), || 199));
    held.let_go();
    assert!(!held.may_answer(TERM, p(9), || 0));
}

#[test]
fn a_lease_that_goes_on_keeps_its_first_position_and_one_that_ran_out_does_not() {
    let mut g = Grantor::default();
    let ask = |number| Ask { life: 7, number };
    assert_eq!(g.ask(ask(1), 1, p(5), 0), Asked::Begins);
    g.begins(7, p(9));
    assert_eq!(g.ask(ask(2), 1, p(6), 100), Asked::GoesOn(p(9)));
    assert_eq!(g.ask(ask(1), 1, p(6), 100), Asked::Late);
    // Over a new connection it is the same holder: what the old one says does not count.
    assert_eq!(g.ask(ask(3), 2, p(6), 200), Asked::GoesOn(p(9)));
    g.acked(1, p(8));
    assert_eq!(g.ceiling(200), p(6));
    g.acked(2, p(8));
    assert_eq!(g.ceiling(200), p(8));
    assert_eq!(g.ask(ask(4), 2, p(8), 200 + GRANTED), Asked::Begins);
    // Another life of the replica does not take the place of the first.
    let other = Ask { life: 8, number: 1 };
    assert_eq!(g.ask(other, 3, p(2), 200 + GRANTED), Asked::Begins);
    assert_eq!(g.ceiling(200 + GRANTED), p(2));
    g.lapse(200 + 2 * GRANTED);
    assert_eq!(g.ceiling(200 + 2 * GRANTED), Ceiling::NONE);
}

#[test]
fn a_primary_that_waits_leases_out_publishes_nothing() {
    let mut g = Grantor::default();
    g.wait_out(50);
    assert_eq!((g.ceiling(49), g.is_over(49)), (Position::ZERO, false));
    assert_eq!((g.ceiling(50), g.is_over(50)), (Ceiling::NONE, true));
}

#[test]
fn a_holder_asks_when_a_lease_is_offered_and_while_it_holds_one() {
    let mut h = Holder::new(7);
    assert_eq!(h.due(SECOND), None, "nothing is offered");
    let first = h.offered(SECOND);
    assert_eq!(h.due(SECOND + EVERY), None, "nothing is held");
    h.granted(first.number, SECOND);
    assert_eq!(h.due(SECOND + EVERY - 1), None);
    let next = h.due(SECOND + EVERY).expect("it is time");
    assert!(next.number > first.number);
    assert_eq!(h.due(SECOND + LENGTH), None, "it is over");
    let late = h.offered(2 * SECOND);
    h.let_go();
    assert_eq!(h.granted(late.number, 2 * SECOND), None);
}

#[test]
fn a_lease_that_is_given_back_holds_nothing_up_and_answers_nothing() {
    let (mut h, held, mut g) = (Holder::new(7), Held::default(), Grantor::default());
    assert_eq!(h.gives_back(&held), None, "nothing was asked for");
    let ask = h.offered(SECOND);
    assert_eq!(g.ask(ask, 1, p(5), SECOND), Asked::Begins);
    g.begins(7, p(5));
    let until = h.granted(ask.number, SECOND).expect("it counts");
    held.hold(TERM, p(5), until);
    // A request is on its way when the lease is wanted back.
    let late = h.due(SECOND + EVERY).expect("it is time");
    let given = h.gives_back(&held).expect("it was asked for");
    assert!(!held.may_answer(TERM, p(9), || SECOND));
    g.given_back(given);
    assert!(g.is_over(SECOND + EVERY) && g.ceiling(SECOND + EVERY) == Ceiling::NONE);
    // Should it come behind, the answer to it counts for nothing.
    assert_eq!(g.ask(late, 1, p(5), SECOND + EVERY), Asked::Begins);
    assert_eq!(h.granted(late.number, SECOND + EVERY), None);
    assert_eq!(
        h.due(SECOND + 2 * EVERY),
        None,
        "it asks when it is offered one"
    );
    // What is given back twice takes no later lease away.
    let next = h.offered(SECOND + EVERY);
    assert_eq!(
        g.ask(next, 1, p(6), SECOND + EVERY),
        Asked::GoesOn(Ceiling::NONE)
    );
    g.given_back(given);
    assert!(!g.is_over(SECOND + EVERY));
}

#[test]
fn a_holder_that_does_not_answer_for_a_while_holds_writers_up() {
    let mut pace = Pace::new(1000);
    assert!(!pace.waits_since(SECOND));
    pace.sent(p(5), 1000);
    pace.sent(p(6), 5000);
    assert!(pace.waits_since(1000) && !pace.waits_since(999));
    pace.acked(p(5), 6000);
    assert!(!pace.waits_since(SECOND));
}

#[test]
fn a_slow_replica_gets_no_lease_until_it_has_been_quick_for_a_while() {
    let mut pace = Pace::new(1000);
    assert!(!pace.keeps_up(false, 0), "nothing is known");
    pace.offers(0);
    pace.asked(900);
    assert!(pace.keeps_up(false, 900));
    pace.sent(p(5), 1000);
    pace.sent(p(6), 1900);
    assert!(
        pace.keeps_up(false, 2000) && !pace.keeps_up(false, 2001),
        "the oldest counts"
    );
    pace.acked(p(4), 2100);
    assert!(!pace.keeps_up(false, 2100), "that was another");
    pace.acked(p(6), SECOND);
    assert!(!pace.keeps_up(false, SECOND));
    let mut answers = 0;
    while !pace.keeps_up(false, SECOND) {
        pace.offers(SECOND);
        pace.asked(SECOND + 500);
        answers += 1;
    }
    assert!((5..50).contains(&answers), "{answers}");
}

#[test]
fn a_holder_may_be_slower_than_a_replica_that_gets_a_lease() {
    let mut pace = Pace::new(1000);
    assert!(!pace.keeps_up(true, 0), "nothing is known");
    for n in 0..50 {
        pace.sent(p(n), SECOND);
        pace.acked(p(n), SECOND + 3000);
    }
    assert!(pace.keeps_up(true, SECOND) && !pace.keeps_up(false, SECOND));
    pace.sent(p(60), SECOND);
    assert!(pace.keeps_up(true, SECOND + 4000) && !pace.keeps_up(true, SECOND + 4001));
    for n in 60..110 {
        pace.sent(p(n), SECOND);
        pace.acked(p(n), SECOND + 5000);
    }
    assert!(!pace.keeps_up(true, SECOND), "no lease goes on for ever");
}

#[derive(Clone, Debug)]
enum Step {
    /// Microseconds pass.
    Passes(u64),
    Commits,
    /// All that was given is to be published.
    Publishes,
    /// The log leaves for a replica, an acknowledgement or an offer for it.
    Ships(usize),
    Acks(usize),
    Offers(usize),
    Renews(usize),
    /// The primary wants the lease back.
    Wants(usize),
    /// One of the messages on the way arrives, or two times, or never.
    Arrives(usize),
    Again(usize),
    Lost(usize),
    /// A replica connects anew.
    Connects(usize),
    /// The primary begins anew and has forgotten what it had lent.
    Restarts,
}

fn step() -> impl Strategy<Value = Step> {
    let one = || 0usize..2;
    prop_oneof![
        4 => (0u64..20_000).prop_map(Step::Passes),
        1 => (50_000u64..400_000).prop_map(Step::Passes),
        4 => Just(Step::Commits),
        6 => Just(Step::Publishes),
        4 => one().prop_map(Step::Ships),
        4 => one().prop_map(Step::Acks),
        2 => one().prop_map(Step::Offers),
        3 => one().prop_map(Step::Renews),
        2 => one().prop_map(Step::Wants),
        16 => (0usize..8).prop_map(Step::Arrives),
        1 => (0usize..8).prop_map(Step::Again),
        1 => (0usize..8).prop_map(Step::Lost),
        1 => one().prop_map(Step::Connects),
        1 => Just(Step::Restarts),
    ]
}

#[derive(Clone, Debug)]
enum Message {
    Log(u64),
    Ack(u64, u64),
    Offer(u64),
    Wanted(u64),
    GivenBack(Ask),
    Ask(u64, Ask),
    Lease(u64, u64, Position),
}

struct Replica {
    holder: Holder,
    held: Held,
    received: u64,
    connection: u64,
    /// A clock of this many thousandths.
    pace: u64,
    /// Both ways, with the connection that they are of.
    way: Vec<Message>,
}

struct Model {
    /// Nanoseconds of a clock that is right.
    now: u64,
    pace: u64,
    grantor: Grantor,
    ceiling: Ceiling,
    given: u64,
    published: u64,
    replicas: [Replica; 2],
    connections: u64,
    answered: usize,
}

impl Model {
    fn new(paces: [u64; 3]) -> Model {
        let replica = |i: u64| Replica {
            holder: Holder::new(i),
            held: Held::default(),
            received: 0,
            connection: i,
            pace: paces[i as usize],
            way: Vec::new(),
        };
        Model {
            now: SECOND,
            pace: paces[2],
            grantor: Grantor::default(),
            ceiling: Ceiling::default(),
            given: 1,
            published: 0,
            replicas: [replica(0), replica(1)],
            connections: 1,
            answered: 0,
        }
    }

    fn lapse(&mut self) -> u64 {
        let now = self.now / 1000 * self.pace;
        self.grantor.lapse(now);
        self.ceiling.set(self.grantor.ceiling(now));
        now
    }

    fn arrives(&mut self, i: usize, m: Message) {
        let now = self.lapse();
        let r = &mut self.replicas[i];
        let mine = self.now / 1000 * r.pace;
        match m {
            Message::Log(upto) => r.received = r.received.max(upto),
            Message::Ack(connection, received) => {
                self.grantor.acked(connection, p(received));
                self.ceiling.set(self.grantor.ceiling(now));
            }
            Message::Offer(c) if c == r.connection => {
                let ask = r.holder.offered(mine);
                r.way.push(Message::Ask(c, ask));
            }
            Message::Ask(c, ask) => {
                // As it was when the request left, or lower: what the primary knows of it.
                let asked = self.grantor.ask(ask, c, p(0), now);
                self.ceiling.set(self.grantor.ceiling(now));
                let first = match asked {
                    Asked::Begins => {
                        self.grantor.begins(ask.life, p(self.given));
                        p(self.given)
                    }
                    Asked::GoesOn(first) => first,
                    Asked::Late => return,
                };
                r.way.push(Message::Lease(c, ask.number, first));
            }
            Message::Lease(c, number, first) if c == r.connection => {
                if let Some(until) = r.holder.granted(number, mine) {
                    r.held.hold(TERM, first, until);
                }
            }
            Message::Wanted(c) if c == r.connection => {
                let given = r.holder.gives_back(&r.held);
                r.way.extend(given.map(Message::GivenBack));
            }
            Message::GivenBack(ask) => {
                self.grantor.given_back(ask);
                self.ceiling.set(self.grantor.ceiling(now));
            }
            Message::Offer(_) | Message::Wanted(_) | Message::Lease(..) => {}
        }
    }

    fn step(&mut self, s: Step) {
        match s {
            Step::Passes(micros) => self.now += micros * 1000,
            Step::Commits => self.given += 1,
            Step::Publishes => {
                self.lapse();
                let to = p(self.given).min(self.ceiling.get()).as_u64();
                self.published = self.published.max(to);
            }
            Step::Ships(i) => self.replicas[i].way.push(Message::Log(self.given)),
            Step::Acks(i) => {
                let r = &mut self.replicas[i];
                r.way.push(Message::Ack(r.connection, r.received));
            }
            Step::Offers(i) => {
                let r = &mut self.replicas[i];
                r.way.push(Message::Offer(r.connection));
            }
            Step::Wants(i) => {
                let r = &mut self.replicas[i];
                r.way.push(Message::Wanted(r.connection));
            }
            Step::Renews(i) => {
                let r = &mut self.replicas[i];
                let mine = self.now / 1000 * r.pace;
                if let Some(ask) = r.holder.due(mine) {
                    r.way.push(Message::Ask(r.connection, ask));
                }
            }
            Step::Arrives(n) | Step::Again(n) | Step::Lost(n) => {
                let i = n % 2;
                let r = &mut self.replicas[i];
                let at = n / 2;
                if at < r.way.len() {
                    let m = match s {
                        Step::Again(_) => r.way[at].clone(),
                        _ => r.way.remove(at),
                    };
                    if !matches!(s, Step::Lost(_)) {
                        self.arrives(i, m);
                    }
                }
            }
            Step::Connects(i) => {
                let r = &mut self.replicas[i];
                self.connections += 1;
                r.connection = self.connections;
                r.holder.let_go();
                r.held.let_go();
            }
            Step::Restarts => {
                let now = self.now / 1000 * self.pace;
                self.grantor = Grantor::default();
                self.grantor.wait_out(now + GRANTED);
                // Nothing comes to it over connections that are gone. What it has sent may arrive still.
                for r in &mut self.replicas {
                    r.way
                        .retain(|m| matches!(m, Message::Log(_) | Message::Lease(..)));
                }
            }
        }
    }

    /// A read that arrives now sees all that is published.
    fn check(&mut self) {
        for r in &self.replicas {
            let mine = self.now / 1000 * r.pace;
            if r.held.may_answer(TERM, p(r.received), || mine) {
                self.answered += 1;
                assert!(
                    r.received >= self.published,
                    "a holder answers at {}, and {} is published",
                    r.received,
                    self.published
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_holder_has_received_all_that_is_published(
        paces in prop::array::uniform3(955u64..=1045),
        steps in prop::collection::vec(step(), 0..400),
    ) {
        let mut model = Model::new(paces);
        for s in steps {
            model.step(s);
            model.check();
        }
    }
}

/// The model is one in which leases are held.
#[test]
fn the_model_answers_by_leases() {
    let mut model = Model::new([1000, 1000, 1000]);
    for _ in 0..10 {
        for s in [
            Step::Commits,
            Step::Ships(0),
            Step::Arrives(0),
            Step::Acks(0),
            Step::Arrives(0),
            Step::Offers(0),
            Step::Arrives(0),
            Step::Arrives(0),
            Step::Arrives(0),
            Step::Publishes,
            Step::Passes(1_000),
        ] {
            model.step(s);
            model.check();
        }
    }
    assert!(model.answered > 50 && model.published == model.given);
}
