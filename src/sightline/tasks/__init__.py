"""What a user has and wants: data in, a trained and scored model out."""
