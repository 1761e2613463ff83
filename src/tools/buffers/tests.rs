use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::agent_text::beside;
use super::lines::{patched, patches};
use super::*;
use tine_git::testing::TestRepository;
use tine_path::RepoPath;

const NAME: &str = "/repo/file";

/// Buffers, and an editor that is connected.
fn person(text: &str, saved: bool) -> PersonText {
    PersonText {
        text: text.into(),
        saved,
    }
}

struct Place {
    _repository: TestRepository,
    store: Store,
    buffers: Buffers,
    session: u64,
    /// What the file held when it was opened.
    saved_first: Option<String>,
}

fn key() -> BufferKey {
    BufferKey {
        fork: None,
        path: RepoPath::parse("file").expect("a good path"),
    }
}

fn name() -> &'static Path {
    Path::new(NAME)
}

impl Place {
    /// The editor has `text` open.
    fn with(text: &str, saved: bool) -> Place {
        let repository = TestRepository::new();
        let store = Store::open(&repository.open()).expect("a new store");
        let buffers = Buffers::default();
        let session = buffers.attach();
        let opened = buffers.open(session, &key(), name(), person(text, saved), None);
        assert_eq!(opened.expect("nobody has it open"), 0);
        Place {
            _repository: repository,
            store,
            buffers,
            session,
            saved_first: saved.then(|| text.to_owned()),
        }
    }

    /// The agent has read the file, if nothing newer, and writes.
    fn writes(&self, agent: &AgentId, text: &str, file: &str) {
        if self.buffers.seen.lock().get(agent, &key()).is_none() {
            self.buffers.seen.lock().insert(agent, &key(), file.into());
        }
        let text = || Ok::<_, StoreError>(text.to_owned());
        let file = || Some(file.to_owned());
        let written = self.buffers.write(&self.store, agent, &key(), text, file);
        let written = written.expect("it is open").expect("the store takes it");
        assert_eq!(written, BufferWritten::Written);
    }

    fn reads(&self, agent: &AgentId) -> String {
        let text = self.buffers.read(&self.store, agent, &key()).unwrap();
        text.expect("it is open").to_string()
    }

    /// The agent has read the file that the editor opened, if nothing newer, and writes.
    fn agent_writes(&self, text: &str) {
        let agent = AgentId::default();
        let has_read = self.buffers.seen.lock().get(&agent, &key()).is_some();
        if !has_read && let Some(saved) = &self.saved_first {
            self.buffers
                .seen
                .lock()
                .insert(&agent, &key(), saved.as_str().into());
        }
        let text = || Ok::<_, StoreError>(text.to_owned());
        let written = self
            .buffers
            .write(&self.store, &agent, &key(), text, || None);
        let written = written.expect("it is open").expect("the store takes it");
        assert_eq!(written, BufferWritten::Written);
    }

    fn types(&self, base: u64, text: &str) -> Result<u64, BufferError> {
        let new = NewText::Text(text.to_owned());
        self.buffers.change(self.session, name(), Some(base), new)
    }

    fn applied(&self, base: u64) -> Result<u64, BufferError> {
        self.buffers
            .applied(&self.store, self.session, name(), base)
    }

    fn saved(&self, base: u64) {
        let saved = self.buffers.saved(&self.store, self.session, name(), base);
        saved.expect("it is that version");
    }

    fn events(&self) -> Vec<BufferEvent> {
        let events = self.buffers.events(self.session, Instant::now(), || true);
        events.expect("the session is there")
    }

    /// The only event, which is an edit.
    #[track_caller]
    fn edit(&self) -> (u64, Vec<TextPatch>) {
        match self.events().as_slice() {
            [
                BufferEvent::Edit {
                    version, patches, ..
                },
            ] => (*version, patches.clone()),
            other => panic!("no edit: {other:?}"),
        }
    }

    fn merge(&self, side: Option<BufferSide>) -> MergedBuffer {
        let merged = self
            .buffers
            .merge(&self.store, &key(), name(), side, Instant::now(), || true);
        merged.expect("it is open")
    }

    fn person(&self) -> String {
        let person = self.buffers.person_text(&key()).expect("it is open");
        person.text.to_string()
    }

    fn agent(&self) -> String {
        let text = self
            .buffers
            .read(&self.store, &AgentId::default(), &key())
            .unwrap();
        text.expect("it is open").to_string()
    }

    fn records(&self) -> Vec<AgentTextRecord> {
        let (records, damaged) = records(&self.store).expect("the shelf can be read");
        assert!(damaged.is_empty());
        records
    }
}

#[test]
fn patches_lead_from_one_text_to_the_other_and_touch_only_what_differs() {
    let found = patches("a\nb\nc\nd", "a\nB\nc\nd\ne\n");
    assert_eq!(
        found,
        [
            TextPatch {
                first_line: 1,
                lines: 1,
                text: "B\n".into()
            },
            TextPatch {
                first_line: 3,
                lines: 1,
                text: "d\ne\n".into()
            },
        ]
    );
    assert_eq!(patches("same\n", "same\n"), []);
    assert_eq!(
        patched("", &patches("", "x\n")).as_deref(),
        Ok("x\n"),
        "an empty text has no line"
    );
}

#[test]
fn a_patch_that_does_not_fit_is_refused_whole() {
    let patch = |first_line, lines, text: &str| TextPatch {
        first_line,
        lines,
        text: text.to_owned(),
    };
    for (text, bad) in [
        ("a\nb\n", vec![patch(2, 1, "")]),
        ("a\nb\n", vec![patch(3, 0, "x\n")]),
        ("a\nb\n", vec![patch(1, 1, ""), patch(0, 1, "")]),
        ("a\nb\n", vec![patch(0, u64::MAX, "")]),
        ("a\nb\n", vec![patch(0, 1, "no end")]),
        ("a\nb", vec![patch(2, 0, "x\n")]),
    ] {
        assert!(patched(text, &bad).is_err(), "{text:?} {bad:?}");
    }
    let place = Place::with("a\n", true);
    let new = NewText::Patches(vec![patch(5, 1, "")]);
    let refused = place.buffers.change(place.session, name(), Some(0), new);
    assert!(
        matches!(refused, Err(BufferError::BadPatch { .. })),
        "{refused:?}"
    );
    assert_eq!(place.person(), "a\n");
}

#[test]
fn what_an_agent_makes_of_a_file_that_was_removed_since_it_was_opened_is_whole() {
    let place = Place::with("one\ntwo\n", true);
    let edit = |text: &str| Ok::<_, StoreError>(text.replace("two", "TWO"));
    let agent = AgentId::default();
    let edited = place
        .buffers
        .edit(&place.store, &agent, &key(), edit, || None)
        .expect("it is open");
    edited.expect("the store takes it");
    let outcome = place.records()[0].outcome(None);
    assert_eq!(outcome.content.as_deref(), Some(&b"one\nTWO\n"[..]));
}

#[test]
fn an_agent_reads_what_the_person_has_and_what_it_writes_comes_into_the_editor() {
    let place = Place::with("one\ntwo\nthree\n", true);
    place
        .types(0, "ONE\ntwo\nthree\n")
        .expect("it is version 0");
    assert_eq!(place.agent(), "ONE\ntwo\nthree\n");
    place.agent_writes("ONE\ntwo\nTHREE\n");
    let (version, patches) = place.edit();
    assert_eq!((version, patches.len()), (1, 1));
    assert_eq!(
        place.person(),
        "ONE\ntwo\nthree\n",
        "the editor has not taken it yet"
    );
    assert_eq!(place.applied(1).expect("it was offered"), 2);
    assert_eq!(place.person(), "ONE\ntwo\nTHREE\n");
    assert!(
        place
            .buffers
            .state(&key())
            .expect("it is open")
            .agent
            .is_none()
    );
}

#[test]
fn what_was_typed_meanwhile_makes_an_edit_stale_and_is_merged() {
    let place = Place::with("1\n2\n3\n4\n5\n", true);
    place.agent_writes("1\n2\n3\n4\nfive\n");
    let (offered, _) = place.edit();
    let typed = place
        .types(0, "one\n2\n3\n4\n5\n")
        .expect("the editor did not take it");
    assert!(matches!(
        place.applied(offered),
        Err(BufferError::Stale {
            version: 1,
            named: 0,
            ..
        })
    ));
    let (version, patches) = place.edit();
    assert_eq!(version, typed);
    assert_eq!(
        patched(&place.person(), &patches).as_deref(),
        Ok("one\n2\n3\n4\nfive\n")
    );
    // What comes late is refused as well.
    assert!(matches!(
        place.types(0, "lost\n"),
        Err(BufferError::Stale { .. })
    ));
}

#[test]
fn a_conflict_is_told_and_both_are_kept_until_it_is_settled() {
    for (side, settled) in [
        (BufferSide::Person, "a\nperson\nc\n"),
        (BufferSide::Agent, "a\nagent\nc\n"),
        (BufferSide::Both, "a\nperson\nagent\nc\n"),
    ] {
        let place = Place::with("a\nb\nc\n", true);
        place.agent_writes("a\nagent\nc\n");
        place.edit();
        place.types(0, "a\nperson\nc\n").expect("it is version 0");
        let conflict = BufferConflict {
            line: 2,
            ancestor: "b\n".into(),
            agent: "agent\n".into(),
            person: "person\n".into(),
        };
        match place.events().as_slice() {
            [BufferEvent::Conflict { conflicts, .. }] => {
                assert_eq!(conflicts, std::slice::from_ref(&conflict))
            }
            other => panic!("no conflict: {other:?}"),
        }
        assert_eq!(place.merge(None).conflicts, [conflict]);
        assert_eq!(
            (place.person(), place.agent()),
            ("a\nperson\nc\n".into(), "a\nagent\nc\n".into())
        );
        place.types(1, "a\nperson\nc\n").expect("it is version 1");
        assert_eq!(place.events(), [], "a conflict is told once");
        let merged = place.merge(Some(side));
        assert!(merged.conflicts.is_empty());
        if merged.pending {
            place.applied(2).expect("it was offered");
        }
        assert_eq!(place.person(), settled, "{side:?}");
        assert_eq!(place.agent(), settled, "{side:?}");
        // The editor goes away: what was decided against does not come back.
        let records = place.records();
        let left = records
            .first()
            .map(|record| record.outcome(Some(b"a\nperson\nc\n")));
        let left = left.and_then(|outcome| outcome.content);
        let expected = (side != BufferSide::Person).then(|| settled.as_bytes().to_vec());
        assert_eq!(left, expected, "{side:?}");
    }
}

#[test]
fn what_an_agent_wrote_is_in_the_store_until_the_person_saved_it() {
    let place = Place::with("a\nb\n", true);
    place.agent_writes("a\nB\n");
    assert_eq!(place.records().len(), 1, "before it is acknowledged");
    place.applied(0).expect("it was offered");
    assert_eq!(
        place.records()[0]
            .outcome(Some(b"a\nb\n"))
            .content
            .as_deref(),
        Some(&b"a\nB\n"[..])
    );
    place.saved(1);
    assert_eq!(place.records(), []);
    place.agent_writes("a\nB\nc\n");
    assert_eq!(place.records().len(), 1);
    let record = place.buffers.close(place.session, &key());
    assert_eq!(
        record,
        Some(place.records()[0].id),
        "it outlives the buffer"
    );
    assert_eq!(
        place
            .buffers
            .read(&place.store, &AgentId::default(), &key())
            .unwrap(),
        None
    );
}

#[test]
fn a_person_who_takes_an_agents_lines_out_and_saves_has_decided() {
    let place = Place::with("a\nb\n", true);
    place.agent_writes("a\nb\nagent\n");
    place.edit();
    place.applied(0).expect("it was offered");
    place.types(1, "a\nb\n").expect("it is version 1");
    assert_eq!(place.events(), [], "it is not offered again");
    place.saved(2);
    assert_eq!(place.records(), []);
    assert_eq!(place.agent(), "a\nb\n");
}

#[test]
fn a_text_that_is_read_again_from_the_file_gets_what_the_agent_wrote_once_more() {
    let place = Place::with("a\nb\n", true);
    place.agent_writes("a\nb\nagent\n");
    place.edit();
    place.applied(0).expect("it was offered");
    let opened = place
        .buffers
        .open(place.session, &key(), name(), person("A\nb\n", true), None)
        .expect("it is the editor's own");
    let (version, patches) = place.edit();
    assert_eq!(version, opened);
    assert_eq!(patched("A\nb\n", &patches).as_deref(), Ok("A\nb\nagent\n"));
}

#[test]
fn a_file_that_moved_on_is_not_overwritten() {
    let record = |ancestor: &str, agent: &str| AgentTextRecord {
        id: 1,
        fork: None,
        path: key().path,
        existed: false,
        saved: None,
        steps: vec![agent_text::StepRecord {
            ancestor: ancestor.to_owned(),
            agent: agent.to_owned(),
        }],
    };
    let clean = record("1\n2\n3\n", "1\n2\nthree\n").outcome(Some(b"one\n2\n3\n"));
    assert_eq!(clean.content.as_deref(), Some(&b"one\n2\nthree\n"[..]));
    assert_eq!(clean.beside, Vec::<String>::new());
    let conflict = record("1\n", "agent\n").outcome(Some(b"person\n"));
    assert_eq!(conflict.content, None);
    assert_eq!(conflict.beside, ["agent\n"]);
    let binary = record("1\n", "agent\n").outcome(Some(b"1\n\0"));
    assert_eq!((binary.content, binary.beside.len()), (None, 1));
    let gone = record("1\n", "agent\n").outcome(None);
    assert_eq!(gone.content.as_deref(), Some(&b"agent\n"[..]));
    let there = record("1\n", "agent\n").outcome(Some(b"agent\n"));
    assert_eq!(
        (there.content, there.beside.len()),
        (None, 0),
        "nothing is done twice"
    );
}

#[test]
fn the_place_beside_a_file_says_what_it_is_and_fits() {
    let at = |path: &str, number| {
        let path = RepoPath::parse(path).expect("a good path");
        beside(&path, number).map(|path| path.to_string())
    };
    assert_eq!(at("a/main.rs", 1).as_deref(), Some("a/main.rs.agent-text"));
    assert_eq!(at("main.rs", 12).as_deref(), Some("main.rs.agent-text-12"));
    let long = at(&"x".repeat(255), 1).expect("it has a place");
    assert_eq!(long.len(), 255);
    assert!(long.ends_with("x.agent-text"));
    assert_eq!(beside(&RepoPath::root(), 1), None);
}

#[test]
fn one_editor_at_a_time_has_a_file() {
    let place = Place::with("a\n", true);
    let other = place.buffers.attach();
    let opened = place
        .buffers
        .open(other, &key(), name(), person("b\n", true), None);
    assert!(matches!(opened, Err(BufferError::Taken(_))), "{opened:?}");
    let changed = place
        .buffers
        .change(other, name(), None, NewText::Text("b\n".into()));
    assert!(
        matches!(changed, Err(BufferError::NoBuffer(_))),
        "{changed:?}"
    );
    assert_eq!(place.person(), "a\n");
    place.buffers.close(place.session, &key());
    let opened = place
        .buffers
        .open(other, &key(), name(), person("b\n", true), None);
    assert!(opened.is_ok(), "{opened:?}");
}

#[test]
fn a_text_that_is_too_long_is_refused_and_changes_nothing() {
    let place = Place::with("a\n", true);
    let long = "x".repeat(MAX_TEXT_BYTES + 1);
    assert!(matches!(
        place.types(0, &long),
        Err(BufferError::TooLarge(_))
    ));
    assert_eq!(
        (place.person(), place.types(0, "b\n").ok()),
        ("a\n".into(), Some(1))
    );
}

#[test]
fn who_waits_for_a_merge_is_told_when_the_editor_has_it() {
    let place = Place::with("a\n", true);
    place.agent_writes("a\nb\n");
    std::thread::scope(|scope| {
        let merging = scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(60);
            place
                .buffers
                .merge(&place.store, &key(), name(), None, deadline, || true)
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        let events = place.buffers.events(place.session, deadline, || true);
        assert_eq!(events.expect("the session is there").len(), 1);
        place.applied(0).expect("it was offered");
        let merged = merging
            .join()
            .expect("it does not panic")
            .expect("it is open");
        assert!(!merged.pending);
    });
    assert_eq!(place.person(), "a\nb\n");
}

#[test]
fn a_listener_hears_of_every_new_text_of_the_person() {
    let place = Place::with("a\n", true);
    let heard = Arc::new(Mutex::new(0));
    let counting = heard.clone();
    place.buffers.set_listener(Box::new(move |changed| {
        assert_eq!(*changed, key());
        *counting.lock() += 1;
    }));
    place.agent_writes("a\nb\n");
    assert_eq!(*heard.lock(), 0, "the person has the same text");
    place.applied(0).expect("it was offered");
    place.types(1, "c\n").expect("it is version 1");
    place.saved(2);
    place.buffers.close(place.session, &key());
    assert_eq!(*heard.lock(), 4);
}

/// What happens in a random life of a buffer.
#[derive(Debug, Clone)]
enum Act {
    /// The person puts a new line before that one, or takes out one that nobody else made.
    Type(usize),
    Delete(usize),
    /// The agent puts a new line before that one.
    Write(usize),
    /// One thing that the editor said reaches the daemon.
    Send,
    /// The editor hears what it is told.
    Hear,
    Save,
    /// Conflicts are settled so that both stay.
    Settle,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0usize..40).prop_map(Act::Type),
        1 => (0usize..40).prop_map(Act::Delete),
        4 => (0usize..40).prop_map(Act::Write),
        6 => Just(Act::Send),
        4 => Just(Act::Hear),
        1 => Just(Act::Save),
        1 => Just(Act::Settle),
    ];
    prop::collection::vec(act, 1..80)
}

/// What an editor has said and the daemon has not heard.
enum EditorMessage {
    Change(u64, Vec<TextPatch>),
    Applied(u64),
    Save(u64),
}

/// An editor as the protocol wants it: it applies what is for the text that it has, and nothing
/// else.
struct Sim {
    place: Place,
    text: String,
    version: u64,
    messages: VecDeque<EditorMessage>,
    /// What the file holds, and what it held when the daemon was told of it.
    file: String,
    lines: usize,
    person_lines: Vec<String>,
    agent_lines: Vec<String>,
}

impl Sim {
    fn new() -> Sim {
        let text: String = (0..12).map(|line| format!("base {line}\n")).collect();
        Sim {
            place: Place::with(&text, true),
            file: text.clone(),
            text,
            version: 0,
            messages: VecDeque::new(),
            lines: 0,
            person_lines: Vec::new(),
            agent_lines: Vec::new(),
        }
    }

    fn with_line(&mut self, text: &str, at: usize, who: &str) -> (String, String) {
        let line = format!("{who} {}\n", self.lines);
        self.lines += 1;
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        lines.insert(at % (lines.len() + 1), &line);
        (lines.concat(), line.clone())
    }

    fn change_to(&mut self, text: String) {
        let change = EditorMessage::Change(self.version, patches(&self.text, &text));
        self.messages.push_back(change);
        self.text = text;
        self.version += 1;
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Type(at) => {
                let (text, line) = self.with_line(&self.text.clone(), *at, "person");
                self.person_lines.push(line);
                self.change_to(text);
            }
            Act::Delete(at) => {
                let mut lines: Vec<&str> = self.text.split_inclusive('\n').collect();
                if lines.is_empty() || lines[at % lines.len()].starts_with("agent") {
                    return;
                }
                let gone = lines.remove(at % lines.len()).to_owned();
                self.person_lines.retain(|line| *line != gone);
                let text = lines.concat();
                self.change_to(text);
            }
            Act::Write(at) => {
                let (text, line) = self.with_line(&self.place.agent(), *at, "agent");
                self.agent_lines.push(line);
                self.place.agent_writes(&text);
            }
            Act::Send => self.send(),
            Act::Hear => self.hear(),
            Act::Save => {
                self.file = self.text.clone();
                self.messages.push_back(EditorMessage::Save(self.version));
            }
            Act::Settle => drop(self.place.merge(Some(BufferSide::Both))),
        }
    }

    fn send(&mut self) {
        let (buffers, session) = (&self.place.buffers, self.place.session);
        match self.messages.pop_front() {
            Some(EditorMessage::Change(base, patches)) => {
                let new = NewText::Patches(patches);
                let changed = buffers.change(session, name(), Some(base), new);
                assert_eq!(changed.expect("nothing overtakes"), base + 1);
            }
            Some(EditorMessage::Applied(base)) => {
                assert_eq!(self.place.applied(base).expect("it was offered"), base + 1);
            }
            Some(EditorMessage::Save(base)) => self.place.saved(base),
            None => {}
        }
    }

    fn hear(&mut self) {
        for event in self.place.events() {
            let BufferEvent::Edit {
                version, patches, ..
            } = event
            else {
                continue;
            };
            if version == self.version {
                self.text = patched(&self.text, &patches).expect("it is for this text");
                self.messages.push_back(EditorMessage::Applied(version));
                self.version += 1;
            }
        }
    }

    /// Everything that is under way arrives.
    fn quiesce(&mut self) {
        for _ in 0..1000 {
            while !self.messages.is_empty() {
                self.send();
            }
            self.hear();
            if self.messages.is_empty() {
                return;
            }
        }
        panic!("it never ends");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn nothing_of_the_person_or_the_agent_is_lost(acts in acts()) {
        let mut sim = Sim::new();
        for act in &acts {
            sim.act(act);
        }
        sim.quiesce();
        prop_assert_eq!(&sim.place.person(), &sim.text, "the daemon has what the editor has");
        let state = sim.place.buffers.state(&key()).expect("it is open");
        prop_assert_eq!(state.version, sim.version);
        // Where nothing is in conflict, nothing is left to be merged.
        prop_assert_eq!(state.agent.is_some(), !state.conflicts.is_empty());
        let agent = sim.place.agent();
        for line in &sim.person_lines {
            prop_assert_eq!(sim.text.matches(line.as_str()).count(), 1, "{}", line);
        }
        for line in &sim.agent_lines {
            prop_assert!(sim.text.contains(line.as_str()) || agent.contains(line.as_str()), "{}", line);
        }
        // The editor goes away.
        let saved = sim.file.clone();
        let record = sim.place.buffers.close(sim.place.session, &key());
        let mut after = vec![saved.clone()];
        if let Some(record) = record {
            let records = sim.place.records();
            let record = records.iter().find(|kept| kept.id == record).expect("it is in the store");
            let outcome = record.outcome(Some(saved.as_bytes()));
            if let Some(content) = outcome.content {
                after = vec![String::from_utf8(content).expect("it is a text")];
            }
            after.extend(outcome.beside);
        }
        for line in &sim.agent_lines {
            prop_assert!(after.iter().any(|text| text.contains(line.as_str())), "{} in {:?}", line, after);
        }
        for line in saved.lines().filter(|line| line.starts_with("person")) {
            prop_assert!(after[0].contains(line), "{} in {}", line, after[0]);
        }
    }

    #[test]
    fn patches_between_any_texts_fit(before in "([a-c]{0,2}\n){0,12}[a-c]{0,1}", after in "([a-c]{0,2}\n){0,12}[a-c]{0,1}") {
        let there = patched(&before, &patches(&before, &after));
        prop_assert_eq!(there, Ok(after));
    }
}

/// Names are the editor's own: two of them do not mix.
#[test]
fn each_buffer_is_told_of_by_its_own_name() {
    let place = Place::with("a\n", true);
    let other = BufferKey {
        fork: None,
        path: RepoPath::parse("other").expect("a good path"),
    };
    let second = PathBuf::from("/repo/other");
    let opened = place
        .buffers
        .open(place.session, &other, &second, person("x\n", true), None);
    opened.expect("nobody has it open");
    place.agent_writes("a\nb\n");
    let agent = AgentId::default();
    let edit = |seen: &str| Ok::<_, StoreError>(format!("{seen}y\n"));
    let written = place
        .buffers
        .edit(&place.store, &agent, &other, edit, || None);
    written.expect("it is open").expect("the store takes it");
    let told: Vec<PathBuf> = place
        .events()
        .iter()
        .map(|event| event.path().to_owned())
        .collect();
    assert_eq!(told, [name().to_owned(), second]);
    assert_eq!(place.records().len(), 2);
}

#[test]
fn a_whole_text_that_an_agent_writes_again_keeps_what_was_typed_since() {
    let place = Place::with("1\n2\n3\n4\n5\n6\n7\n8\n9\n", true);
    place.agent_writes("1\n2\nthree\n4\n5\n6\n7\n8\n9\n");
    place.edit();
    place.applied(0).expect("it was offered");
    place
        .types(1, "1\n2\nthree\n4\n5\n6\n7\n8\nperson\n")
        .expect("it is that version");
    place.agent_writes("1\ntwo\nthree\n4\n5\n6\n7\n8\n9\n");
    let (version, patches) = place.edit();
    assert_eq!((version, patches.len(), patches[0].first_line), (2, 1, 1));
    place.applied(2).expect("it was offered");
    assert_eq!(place.person(), "1\ntwo\nthree\n4\n5\n6\n7\n8\nperson\n");
}

#[test]
fn an_agent_that_was_given_nothing_takes_out_nothing_that_is_not_saved() {
    let place = Place::with("1\n2\n3\n", true);
    place
        .types(0, "1\n2\n3\nperson\n")
        .expect("it is that version");
    place.writes(&AgentId("a".into()), "one\n2\n3\n", "1\n2\n3\n");
    place.edit();
    place.applied(1).expect("it was offered");
    assert_eq!(place.person(), "one\n2\n3\nperson\n");
}

#[test]
fn an_agent_that_has_read_a_line_can_take_it_out() {
    let place = Place::with("1\n2\n3\n", true);
    place
        .types(0, "1\n2\n3\nperson\n")
        .expect("it is that version");
    assert_eq!(place.agent(), "1\n2\n3\nperson\n");
    place.agent_writes("1\n2\n3\n");
    place.edit();
    place.applied(1).expect("it was offered");
    assert_eq!(place.person(), "1\n2\n3\n");
}

#[test]
fn what_a_person_never_saved_goes_neither_beside_a_file_nor_into_a_new_one() {
    let place = Place::with("saved\n", true);
    place.types(0, "unsaved\nsaved\n").expect("it is version 0");
    assert_eq!(place.reads(&AgentId::default()), "unsaved\nsaved\n");
    place.writes(&AgentId::default(), "unsaved\nagent\n", "saved\n");
    place.writes(&AgentId::default(), "unsaved\nagent\nmore\n", "saved\n");
    let record = &place.records()[0];
    let text = vec!["agent\nmore\n".to_owned()];
    assert_eq!(record.outcome(Some(b"saved\n")).beside, text);
    assert_eq!(record.outcome_beside().beside, text);

    let place = Place::with("unsaved\n", false);
    assert_eq!(place.reads(&AgentId::default()), "unsaved\n");
    let write = |text: &'static str| {
        let text = || Ok::<_, StoreError>(text.to_owned());
        let written = place
            .buffers
            .write(&place.store, &AgentId::default(), &key(), text, || None);
        written.expect("it is open").expect("the store takes it");
    };
    write("unsaved\nagent\n");
    write("unsaved\nagent\nmore\n");
    let content = place.records()[0].outcome(None).content;
    assert_eq!(content.as_deref(), Some(&b"agent\nmore\n"[..]));
}

#[test]
fn a_file_that_was_removed_is_not_made_again() {
    let place = Place::with("a\n", true);
    place.writes(&AgentId::default(), "a\nagent\n", "a\n");
    let records = place.records();
    let outcome = records[0].outcome(None);
    assert_eq!(
        (outcome.content, outcome.beside),
        (None, vec!["a\nagent\n".to_owned()])
    );
}

/// What two agents and a person do, each with what it last had.
#[derive(Debug, Clone)]
enum Shared {
    Person(Act),
    Read(usize),
    /// An agent puts a line into the text that it has, whatever others did since.
    Write(usize, usize),
    /// An agent takes a line out that it has.
    Prune(usize, usize),
    /// What agents wrote is brought into the file.
    File,
}

fn shared_acts() -> impl Strategy<Value = Vec<Shared>> {
    let person = prop_oneof![
        5 => (0usize..40).prop_map(Act::Type),
        6 => Just(Act::Send),
        5 => Just(Act::Hear),
        1 => Just(Act::Save),
        1 => Just(Act::Settle),
    ];
    let act = prop_oneof![
        12 => person.prop_map(Shared::Person),
        2 => (0usize..2).prop_map(Shared::Read),
        5 => (0usize..2, 0usize..40).prop_map(|(agent, at)| Shared::Write(agent, at)),
        1 => (0usize..2, 0usize..40).prop_map(|(agent, at)| Shared::Prune(agent, at)),
        1 => Just(Shared::File),
    ];
    prop::collection::vec(act, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nobodys_line_goes_that_its_remover_has_not_seen(acts in shared_acts()) {
        let mut sim = Sim::new();
        let agents = [AgentId("one".into()), AgentId("two".into())];
        let mut has: Vec<String> = agents.iter().map(|agent| sim.place.reads(agent)).collect();
        for act in &acts {
            match act {
                Shared::Person(act) => sim.act(act),
                Shared::Read(agent) => has[*agent] = sim.place.reads(&agents[*agent]),
                Shared::Write(agent, at) => {
                    let (text, line) = sim.with_line(&has[*agent].clone(), *at, "agent");
                    sim.agent_lines.push(line);
                    sim.place.writes(&agents[*agent], &text, &sim.file);
                    has[*agent] = text;
                }
                Shared::Prune(agent, at) => {
                    let mut lines: Vec<&str> = has[*agent].split_inclusive('\n').collect();
                    if lines.is_empty() {
                        continue;
                    }
                    let gone = lines.remove(at % lines.len()).to_owned();
                    let text = lines.concat();
                    sim.person_lines.retain(|line| *line != gone);
                    sim.agent_lines.retain(|line| *line != gone);
                    sim.place.writes(&agents[*agent], &text, &sim.file);
                    has[*agent] = text;
                }
                Shared::File => {
                    let buffers = &sim.place.buffers;
                    if let Some(record) = buffers.unfiled(&key()) {
                        let outcome = record.outcome(Some(sim.file.as_bytes()));
                        if let Some(content) = outcome.content {
                            sim.file = String::from_utf8(content).expect("it is a text");
                        }
                        let filed = buffers.filed(&sim.place.store, &key(), &record, &outcome.fits, true);
                        filed.expect("the store takes it").expect("nobody wrote since");
                    }
                }
            }
        }
        sim.quiesce();
        prop_assert_eq!(&sim.place.person(), &sim.text, "the daemon has what the editor has");
        let seen: Vec<String> = agents.iter().map(|agent| sim.place.reads(agent)).collect();
        for line in &sim.person_lines {
            prop_assert!(sim.text.contains(line.as_str()), "{}", line);
        }
        for line in &sim.agent_lines {
            let is_there = sim.text.contains(line.as_str()) || seen.iter().any(|text| text.contains(line.as_str()));
            prop_assert!(is_there, "{}", line);
        }
        let mut after = vec![sim.file.clone()];
        if sim.place.buffers.close(sim.place.session, &key()).is_some() {
            let outcome = sim.place.records()[0].outcome(Some(sim.file.as_bytes()));
            if let Some(content) = outcome.content {
                after = vec![String::from_utf8(content).expect("it is a text")];
            }
            after.extend(outcome.beside);
        }
        for line in &sim.agent_lines {
            prop_assert!(after.iter().any(|text| text.contains(line.as_str())), "{} in {:?}", line, after);
        }
    }
}

#[test]
fn a_line_between_two_conflicts_is_there_once_where_both_sides_are_kept() {
    let place = Place::with("one\ntwo\nthree\n", true);
    place.agent();
    place
        .types(0, "two\nperson\nthree\n")
        .expect("it is version 0");
    place.agent_writes("agent\none\ntwo\nagent too\nthree\n");
    assert!(matches!(
        place.events().as_slice(),
        [BufferEvent::Conflict { .. }]
    ));
    place.merge(Some(BufferSide::Both));
    let (_, patches) = place.edit();
    assert_eq!(
        patched(&place.person(), &patches).as_deref(),
        Ok("agent\none\ntwo\nperson\nagent too\nthree\n")
    );
}
