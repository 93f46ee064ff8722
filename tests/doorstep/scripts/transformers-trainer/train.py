from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("distilbert-base-uncased")
data = load_dataset("json", data_files="reviews.jsonl", split="train")
data = data.map(lambda row: tokenizer(row["text"], truncation=True), batched=True)
trainer = Trainer(
    model=AutoModelForSequenceClassification.from_pretrained("distilbert-base-uncased", num_labels=2),
    args=TrainingArguments(output_dir="out", learning_rate=2e-5, num_train_epochs=3),
    train_dataset=data,
)
trainer.train()
