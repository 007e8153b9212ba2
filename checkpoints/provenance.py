"""Whether a checkpoint may be used with the images of a job."""

from common.errors import UserError


def require_usable(path, metadata, config, pipeline):
    """Refuses a checkpoint that does not go with the images of a job.

    The jobs are: evaluating it, resuming it, and starting a training from it.

    Args:
      path: path of the checkpoint, for the message.
      metadata: its `checkpoint.Metadata`.
      config: `Config` of the job.
      pipeline: `Pipeline` of the job.

    Raises:
      UserError: if the checkpoint was trained on the same data set, but on
        images that the job holds out, or on classes of other names or in
        another order.
    """
    if metadata.training.get("dataset") != config.dataset_name:
        return
    _require_unseen(path, metadata, config, pipeline)
    _require_same_division(path, metadata, pipeline)
    _require_same_classes(path, metadata, config, pipeline)


def division_settings(spec):
    """What a checkpoint records of how images were divided.

    Args:
      spec: `features.Spec` of the images.
    """
    return {
        f"divided_for_{purpose}": digest
        for purpose, digest in spec.split_digests.items()
    }


def _require_unseen(path, metadata, config, pipeline):
    before = metadata.training
    if config.validate and before.get("validate") is False:
        raise UserError(
            f"{path} was trained without --validate, on the very images that "
            "--validate holds out: leave it out here, or train with it from "
            "the start"
        )
    if pipeline.spec.split_seed not in (None, before.get("seed")):
        raise UserError(
            f"{path} was trained with --seed={before.get('seed')}, which "
            "decided what images are for training: take the same seed, or "
            "split the images into folders train and test"
        )


def _require_same_division(path, metadata, pipeline):
    for name, digest in division_settings(pipeline.spec).items():
        if metadata.training.get(name) != digest:
            raise UserError(
                f"{path} was trained on images that were divided otherwise: "
                f"since then files came or went (or the program's way of "
                f"dividing them changed), so that some it was trained on would "
                f"be held out. Put the files back, or split them "
                "into folders train and test"
            )


def _require_same_classes(path, metadata, config, pipeline):
    before, now = metadata.class_names, pipeline.spec.class_names
    if None not in (before, now) and list(before) != list(now):
        raise UserError(
            f"{path} was trained on the classes {', '.join(before)}, but "
            f"those of --dataset={config.dataset_name} here are "
            f"{', '.join(now)}: the same names are needed, in the same order"
        )
