//! Runs a schedule, and checks that the archive keeps its promises.

use varve_sim::SeededDraw;

use crate::action::Action;
use crate::case::{Case, Checked};
use crate::contents::{Content, change_image};
use crate::report::{Failure, Outcome};
use crate::schedule::{Schedule, Step};
use crate::steps::read::must_verify;
use crate::steps::write::IMAGE_BYTES_MAX;

/// Runs a schedule to its end, and then cuts the power once more.
pub fn run(schedule: &Schedule) -> Result<Outcome, Failure> {
    let mut case = Case::create(schedule)?;
    if schedule.pretends_to_sync {
        case.disk.pretend_to_sync();
    }
    let done = run_steps(&mut case, schedule);
    let outcome = case.outcome();
    match done {
        Ok(()) => Ok(outcome),
        Err(failure) => Err(Failure { outcome: Some(Box::new(outcome)), ..failure }),
    }
}

fn run_steps(case: &mut Case, schedule: &Schedule) -> Checked {
    for (number, step) in schedule.steps.iter().enumerate() {
        case.step(step).map_err(|failure| Failure {
            text: format!("step {number}, {:?}: {}", step.action, failure.text),
            ..failure
        })?;
    }
    case.end().map_err(|failure| Failure { text: format!("at the end: {}", failure.text), ..failure })
}

impl Case {
    fn step(&mut self, step: &Step) -> Checked {
        self.begin(step);
        *self.counts.entry(step.action.name()).or_default() += 1;
        self.act(step)?;
        self.disarm();
        if self.disk.is_down() {
            self.restart();
        }
        Ok(())
    }

    /// Cuts the power once more. All that was promised exists after it, and after closing and
    /// opening.
    fn end(&mut self) -> Checked {
        self.disk.reseed(u64::MAX);
        self.note_struck();
        self.disk.behave();
        self.disk.cut_power();
        self.restart();
        self.note_struck();
        self.forget_owed_failure();
        self.verify_as_left()?;
        self.open_writer()?;
        self.check_all(true)?;
        self.close()?;
        self.open_writer()?;
        // All bytes were read just now, so this `verify` skips the data and looks at what closing
        // wrote.
        self.check_all(false)?;
        must_verify(self.writer(), false, " of what was closed")?;
        self.check_parity()
    }

    fn act(&mut self, step: &Step) -> Checked {
        let draw = &mut SeededDraw::new(step.draw);
        match step.action {
            Action::Put { first, count, bytes } => self.put(first, count, bytes),
            Action::Get { count } => self.get(draw, count),
            Action::Sync => {
                self.open_writer()?;
                self.sync()
            }
            Action::Image { changes } => {
                change_image(&mut self.image, draw.number(), changes, IMAGE_BYTES_MAX);
                self.take_image()
            }
            Action::Folder { changes } => self.change_folder(draw, changes).and_then(|()| self.take_folder()),
            Action::File { bytes } => {
                self.store_file(Content { number: draw.below(50), length: bytes as usize })
            }
            Action::Restore { count } => self.restore(draw, count),
            Action::Verify { data } => self.verify(data),
            Action::Repair => self.repair_what_is_whole(),
            Action::Checkpoint => self.checkpoint(),
            Action::OpenReader => self.open_reader(),
            Action::AskReader => self.ask_reader(),
            Action::SecondWriter => self.second_writer(),
            Action::WriteOnly { folder, changes, closes } => {
                change_image(&mut self.image, draw.number(), changes, IMAGE_BYTES_MAX);
                self.change_folder(draw, changes)?;
                self.write_only_night(folder, closes)
            }
            Action::Close => {
                self.open_writer()?;
                self.close()
            }
            Action::Kill => {
                self.end_session();
                self.open_writer()
            }
            Action::PowerCut => {
                self.disk.cut_power();
                self.restart();
                self.open_writer()?;
                self.disarm();
                self.check_all(draw.once_in(2))
            }
            Action::MakeRoom => {
                self.disk.behave();
                Ok(())
            }
            Action::Rot { rot, count, kind, cure } => self.rot(step, draw, (rot, count, kind), cure),
            Action::Keep => {
                self.keep();
                Ok(())
            }
            Action::GoBack => self.go_back(),
            Action::PutBack { count, kind, cure } => self.put_files_back(step, draw, (count, kind), cure),
            Action::Withhold { count, cuts_power } => self.withhold(draw, count, cuts_power),
            Action::Replicate => self.replicate(),
            Action::ReadReplica => self.read_replica(draw),
            Action::Clone { moves } => self.bring_back(step, moves),
            Action::SpoilReplica { spoil, count } => self.spoil_replica(draw, spoil, count),
            Action::Forget { count, has_undo } => self.forget(draw, count, has_undo),
            Action::UndoForget { count } => self.undo_forget(draw, count),
            Action::Hold { releases } => self.hold(draw, releases),
            Action::Wait { hours } => {
                self.wait(hours);
                Ok(())
            }
            Action::PlanCollection { arenas_max } => self.plan_collection(arenas_max),
            Action::ApplyBatch => self.apply_batch(),
            Action::Collect { arenas_max } => self.collect(arenas_max),
            Action::OpenLeasedReader => self.open_leased_reader(),
            Action::DropSuperseded => self.drop_superseded(),
        }
    }
}
