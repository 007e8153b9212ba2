"""Keeps images that a checkpoint was trained on out of its evaluation."""

from errors import UserError


def require_unseen(path, metadata, config, pipeline):
    """Refuses a checkpoint that has seen images which a job holds out.

    The jobs are: evaluating it, resuming it, and starting a training from it.

    Args:
      path: path of the checkpoint, for the message.
      metadata: its `checkpoint.Metadata`.
      config: `Config` of the job.
      pipeline: `Pipeline` of the job.

    Raises:
      UserError: if the checkpoint was trained on the same data set, but
        without the `validate` of the job, or split by another seed.
    """
    before = metadata.training
    if before.get("dataset") != config.dataset_name:
        return
    if config.validate and before.get("validate") is False:
        raise UserError(
            f"{path} was trained without --validate, on the very images that "
            "--validate holds out: leave it out here, or train with it from "
            "the start"
        )
    if pipeline.split_seed not in (None, before.get("seed")):
        raise UserError(
            f"{path} was trained with --seed={before.get('seed')}, which "
            "decided what images are for training: take the same seed, or "
            "split the images into folders train and test"
        )
