//! Resolver that runs a command and speaks JSON with it.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{
    Answer, AnsweredResolution, ConflictQuestion, Judgement, MergeQuestion, Question, Resolver,
    ResolverError, VerdictKind,
};
use tine_path::text::PathText;
use tine_sys::process;

/// Size in bytes from which an answer is refused.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// Number of characters of standard error that an error message quotes.
const MAX_ERROR_CHARS: usize = 400;

/// Resolver that runs a command for each question.
#[derive(Debug, Clone)]
pub struct CommandResolver {
    /// Command line for `sh -c`.
    pub command: OsString,
    /// Working directory of the command.
    pub dir: PathBuf,
    /// Time that one answer may take.
    pub patience: Duration,
}

/// Answer in JSON.
///
/// `resolution` is optional if there is content.
#[derive(Deserialize)]
struct AnswerText {
    resolution: Option<ResolutionWord>,
    content: Option<String>,
    content_base64: Option<String>,
    executable: Option<bool>,
    reasoning: Option<String>,
    metadata: Option<serde_json::Value>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum ResolutionWord {
    Content,
    Base,
    Ours,
    Theirs,
    Union,
    OursFile,
    TheirsFile,
    Delete,
    Skip,
}

#[derive(Deserialize)]
struct JudgementText {
    verdict: VerdictKind,
    #[serde(default)]
    changes: Vec<ChangeText>,
    reasoning: Option<String>,
    metadata: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct ChangeText {
    path: PathText,
    content: Option<String>,
    content_base64: Option<String>,
    #[serde(default)]
    delete: bool,
}

impl Resolver for CommandResolver {
    fn resolve(&self, question: &ConflictQuestion) -> Result<Answer, ResolverError> {
        let printed = self.ask(&Question::Resolve(Box::new(question.clone())))?;
        let text: AnswerText = serde_json::from_slice(&printed).map_err(malformed)?;
        let content = bytes_of(text.content, text.content_base64.as_deref())?;
        let resolution = match (text.resolution, content) {
            (None | Some(ResolutionWord::Content), Some(bytes)) => AnsweredResolution::Content {
                bytes,
                executable: text.executable,
            },
            (Some(ResolutionWord::Content), None) => {
                return Err(ResolverError::Malformed("it has no content".to_owned()));
            }
            (None, None) => {
                return Err(ResolverError::Malformed(
                    "it has neither a resolution nor content".to_owned(),
                ));
            }
            (Some(_), Some(_)) => {
                return Err(ResolverError::Malformed(
                    "it has content beside another resolution".to_owned(),
                ));
            }
            (Some(ResolutionWord::Base), None) => AnsweredResolution::Base,
            (Some(ResolutionWord::Ours), None) => AnsweredResolution::Ours,
            (Some(ResolutionWord::Theirs), None) => AnsweredResolution::Theirs,
            (Some(ResolutionWord::Union), None) => AnsweredResolution::Union,
            (Some(ResolutionWord::OursFile), None) => AnsweredResolution::OursFile,
            (Some(ResolutionWord::TheirsFile), None) => AnsweredResolution::TheirsFile,
            (Some(ResolutionWord::Delete), None) => AnsweredResolution::Delete,
            (Some(ResolutionWord::Skip), None) => AnsweredResolution::Skip,
        };
        Ok(Answer {
            resolution,
            reasoning: text.reasoning,
            metadata: text.metadata,
        })
    }

    fn judge(&self, question: &MergeQuestion) -> Result<Judgement, ResolverError> {
        let printed = self.ask(&Question::Judge(Box::new(question.clone())))?;
        let text: JudgementText = serde_json::from_slice(&printed).map_err(malformed)?;
        let mut changes = Vec::new();
        for change in text.changes {
            let content = bytes_of(change.content, change.content_base64.as_deref())?;
            if content.is_some() == change.delete {
                return Err(ResolverError::Malformed(
                    "a change has either content or `delete`".to_owned(),
                ));
            }
            changes.push((change.path, content));
        }
        if (text.verdict == VerdictKind::Amend) == changes.is_empty() {
            return Err(ResolverError::Malformed(
                "changes belong to the verdict `amend`, and to no other".to_owned(),
            ));
        }
        Ok(Judgement {
            verdict: text.verdict,
            changes,
            reasoning: text.reasoning,
            metadata: text.metadata,
        })
    }
}

fn malformed(error: serde_json::Error) -> ResolverError {
    ResolverError::Malformed(error.to_string())
}

fn bytes_of(text: Option<String>, base64: Option<&str>) -> Result<Option<Vec<u8>>, ResolverError> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(ResolverError::Malformed("it has two contents".to_owned())),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => STANDARD
            .decode(base64)
            .map(Some)
            .map_err(|error| ResolverError::Malformed(error.to_string())),
        (None, None) => Ok(None),
    }
}

/// Output and exit status of a command.
struct CommandOutput {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl CommandResolver {
    /// Runs the command with a question, and returns its output.
    fn ask(&self, question: &Question) -> Result<Vec<u8>, ResolverError> {
        let input = serde_json::to_vec(question).map_err(malformed)?;
        let printed = self.run(input)?;
        if !printed.status.success() {
            let said = String::from_utf8_lossy(&printed.stderr);
            let status = match (printed.status.code(), printed.status.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "no exit code".to_owned(),
            };
            return Err(ResolverError::Failed {
                status,
                stderr: said.trim().chars().take(MAX_ERROR_CHARS).collect(),
            });
        }
        if printed.stdout.len() as u64 >= MAX_ANSWER_BYTES {
            return Err(ResolverError::Malformed("it is too long".to_owned()));
        }
        Ok(printed.stdout)
    }

    /// Runs the command with `input`, and kills its group after the timeout.
    ///
    /// Blocks until the command ends.
    fn run(&self, input: Vec<u8>) -> Result<CommandOutput, ResolverError> {
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(&self.command)
            .current_dir(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Its own process group, so that all its children can be killed.
            .process_group(0)
            .spawn()
            .map_err(ResolverError::NotRun)?;
        let group = child.id();
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        if let Some(mut stdin) = stdin {
            // A command that needs no question may close the pipe.
            thread::spawn(move || stdin.write_all(&input).ok());
        }
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let errors = thread::spawn(move || read(stderr));
            let stdout = read(stdout);
            let printed = child.wait().map(|status| CommandOutput {
                status,
                stdout,
                stderr: errors.join().unwrap_or_default(),
            });
            // After a timeout there is no receiver.
            let _ = sender.send(printed);
        });
        match receiver.recv_timeout(self.patience) {
            Ok(printed) => printed.map_err(ResolverError::NotRun),
            Err(_) => {
                process::kill_group(group).map_err(ResolverError::NotRun)?;
                Err(ResolverError::TimedOut(self.patience))
            }
        }
    }
}

/// Reads a pipe to its end, or up to [`MAX_ANSWER_BYTES`].
fn read(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // The bytes before an error are kept. The exit code reports the failure.
        let _ = pipe.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::JsonBytes;
    use super::*;
    use tine_merge::ConflictKind;

    fn resolver(command: &str) -> CommandResolver {
        CommandResolver {
            command: command.into(),
            dir: "/".into(),
            patience: Duration::from_secs(20),
        }
    }

    fn question() -> ConflictQuestion {
        ConflictQuestion {
            kind: ConflictKind::BothModified,
            path: PathText::Text("a".to_owned()),
            paths: vec![PathText::Text("a".to_owned())],
            base: Vec::new(),
            ours: Vec::new(),
            theirs: Vec::new(),
            hunks: Vec::new(),
            ours_commits: Vec::new(),
            theirs_commits: Vec::new(),
            other_paths: Vec::new(),
        }
    }

    fn answer_of(command: &str) -> Result<Answer, ResolverError> {
        resolver(command).resolve(&question())
    }

    #[test]
    fn an_answer_is_content_a_side_or_nothing() {
        let answer =
            answer_of(r#"printf %s '{"content":"x\n","reasoning":"why","metadata":{"cost":1}}'"#)
                .unwrap();
        assert_eq!(
            answer.resolution,
            AnsweredResolution::Content {
                bytes: b"x\n".to_vec(),
                executable: None
            }
        );
        assert_eq!(answer.reasoning.as_deref(), Some("why"));
        assert_eq!(answer.metadata, Some(serde_json::json!({"cost": 1})));
        for (word, resolution) in [
            ("ours", AnsweredResolution::Ours),
            ("theirs", AnsweredResolution::Theirs),
            ("base", AnsweredResolution::Base),
            ("union", AnsweredResolution::Union),
            ("ours_file", AnsweredResolution::OursFile),
            ("theirs_file", AnsweredResolution::TheirsFile),
            ("delete", AnsweredResolution::Delete),
            ("skip", AnsweredResolution::Skip),
        ] {
            let answer = answer_of(&format!(r#"echo '{{"resolution":"{word}"}}'"#)).unwrap();
            assert_eq!(answer.resolution, resolution);
        }
        let answer = answer_of(r#"echo '{"content_base64":"AP8=","executable":true}'"#).unwrap();
        assert_eq!(
            answer.resolution,
            AnsweredResolution::Content {
                bytes: vec![0, 255],
                executable: Some(true)
            }
        );
    }

    #[test]
    fn a_command_reads_the_question() {
        let answer = answer_of(
            r#"grep -q '"ask":"resolve","kind":"both_modified","path":"a"' && echo '{"resolution":"ours"}'"#,
        );
        assert_eq!(answer.unwrap().resolution, AnsweredResolution::Ours);
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for (command, told) in [
            ("echo nonsense", "not understood"),
            ("true", "not understood"),
            ("echo '{}'", "neither a resolution nor content"),
            (r#"echo '{"resolution":"content"}'"#, "no content"),
            (
                r#"echo '{"resolution":"ours","content":"x"}'"#,
                "beside another",
            ),
            (
                r#"echo '{"content":"x","content_base64":"eA=="}'"#,
                "two contents",
            ),
            (r#"echo '{"content_base64":"!"}'"#, "not understood"),
            (
                "echo out of credit >&2; exit 3",
                "exit code 3): out of credit",
            ),
            ("kill -9 $$", "signal 9"),
            ("no-such-command-anywhere", "exit code 127"),
        ] {
            let error = answer_of(command).unwrap_err().to_string();
            assert!(error.contains(told), "{command}: {error}");
        }
    }

    #[test]
    fn patience_ends_with_all_that_the_command_started() {
        let slow = CommandResolver {
            patience: Duration::from_millis(200),
            ..resolver("sleep 600 & sleep 600")
        };
        let error = slow.resolve(&question()).unwrap_err();
        assert!(matches!(error, ResolverError::TimedOut(_)), "{error}");
    }

    #[test]
    fn a_judgement_accepts_amends_or_vetoes() {
        let merged = MergeQuestion {
            source: "a".to_owned(),
            target: "b".to_owned(),
            patch: JsonBytes::Text(String::new()),
            changed_paths: Vec::new(),
            resolutions: Vec::new(),
        };
        let judge = |command: &str| resolver(command).judge(&merged);
        let accepted = judge(r#"echo '{"verdict":"accept"}'"#).unwrap();
        assert_eq!(
            (accepted.verdict, accepted.changes.len()),
            (VerdictKind::Accept, 0)
        );
        let amended = judge(
            r#"echo '{"verdict":"amend","changes":[{"path":"x","content":"1"},{"path":"y","delete":true}]}'"#,
        );
        let text = |path: &str| PathText::Text(path.to_owned());
        assert_eq!(
            amended.unwrap().changes,
            [(text("x"), Some(b"1".to_vec())), (text("y"), None)]
        );
        for refused in [
            r#"{"verdict":"amend"}"#,
            r#"{"verdict":"accept","changes":[{"path":"x","content":"1"}]}"#,
            r#"{"verdict":"amend","changes":[{"path":"x"}]}"#,
            r#"{"verdict":"amend","changes":[{"path":"x","content":"1","delete":true}]}"#,
            r#"{"verdict":"perhaps"}"#,
        ] {
            assert!(judge(&format!("echo '{refused}'")).is_err(), "{refused}");
        }
    }
}
